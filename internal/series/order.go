package series

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Tag is what a subject says of a patch's place: "[PATCH net v2 1/3]".
type Tag struct {
	Version int // 1 if none is given
	Resend  bool
	N, Of   int  // both 0 without numbers; N is 0 for a cover letter
	Reply   bool // "Re:"
	Marked  bool // it says that the mail is a patch: PATCH, RFC, or numbers
}

// release orders the versions of a series: a RESEND is newer than what it repeats.
type release struct {
	version int
	resend  bool
}

func (t Tag) release() release { return release{t.Version, t.Resend} }

func (r release) String() string {
	if r.resend {
		return fmt.Sprintf("v%d RESEND", r.version)
	}
	return fmt.Sprintf("v%d", r.version)
}

func compareReleases(a, b release) int {
	if c := cmp.Compare(a.version, b.version); c != 0 || a.resend == b.resend {
		return c
	}
	if a.resend {
		return 1
	}
	return -1
}

var (
	replyPrefix = regexp.MustCompile(`(?i)^\s*(re|aw|sv|antw)(\[\d+\])?\s*:\s*`)
	tagBracket  = regexp.MustCompile(`^\s*(?:(?i:fwd?)\s*:\s*)?\[([^\]]*)\]`)
	tagNumbers  = regexp.MustCompile(`(?i)(?:^|[^0-9.])([0-9]{1,5})\s*(?:/|\sof\s)\s*([0-9]{1,5})$`)
	tagVersion  = regexp.MustCompile(`(?i)(?:^|[\s,]|PATCH|RFC)v([0-9]{1,5})(?:\.[0-9]+)?(?:[\s,]|$)`)
	tagWord     = regexp.MustCompile(`(?i)\b(PATCH|RFC|RFT)(\b|v?[0-9])`)
	tagResend   = regexp.MustCompile(`(?i)\b(RESEND|REPOST)\b`)
)

// ParseTag reads the tags of a subject, in all the ways people write them:
// "[PATCH v2 1/3]", "[PATCHv2 1/3]", "[PATCH1/8]", "[RESEND] [PATCH 01/10]".
func ParseTag(subject string) Tag {
	t := Tag{Version: 1}
	subject = subject[:min(len(subject), 1<<10)] // what is longer was made to keep us busy
	for {
		at := replyPrefix.FindStringIndex(subject)
		if at == nil {
			break
		}
		t.Reply, subject = true, subject[at[1]:]
	}
	for {
		m := tagBracket.FindStringSubmatch(subject)
		if m == nil {
			return t
		}
		subject = subject[len(m[0]):]
		t.bracket(strings.TrimSpace(m[1]))
	}
}

// bracket takes what stands between "[" and "]".
func (t *Tag) bracket(s string) {
	t.Resend = t.Resend || tagResend.MatchString(s)
	t.Marked = t.Marked || tagWord.MatchString(s)
	if v := tagVersion.FindStringSubmatch(s); v != nil {
		t.Version, _ = strconv.Atoi(v[1]) // digits, few of them
	}
	if t.Of > 0 {
		return
	}
	// "[PATCH 1/3 net]" as well: numbers may stand before other words.
	for end := len(s); end > 0; end = strings.LastIndexAny(s[:end], " ,") {
		if n := tagNumbers.FindStringSubmatch(s[:end]); n != nil {
			t.N, _ = strconv.Atoi(n[1])
			t.Of, _ = strconv.Atoi(n[2])
			t.Marked = t.Marked || t.Of > 0
			return
		}
	}
}

// Mailbox is a series as it was found among mails.
type Mailbox struct {
	Patches  []Patch
	Skipped  []string // the mails that are no part of it, each with the reason
	Warnings []string // what was chosen, and what else there was
}

// item is a mail that has a patch.
type item struct {
	mail  Mail
	file  string // it came from
	tag   Tag
	title string // without tags
}

func (it item) String() string { return it.mail.title() }

// name is what the item's patch is called in messages.
func (it item) name() string {
	if it.mail.Number == 0 {
		return it.file
	}
	return fmt.Sprintf("%s mail %d", it.file, it.mail.Number)
}

func (it item) patch() (Patch, error) {
	p := Patch{Name: it.name()}
	if err := p.fromMail(it.mail); err != nil {
		return Patch{}, &ParseError{Name: it.file, Err: fmt.Errorf("%s: %w", it, err)}
	}
	return p, nil
}

// choose makes a series of the mails of one mailbox: those with a patch, of one
// version, in the order of their numbers.
func choose(file string, mails []Mail) (Mailbox, error) {
	var box Mailbox
	fail := func(err error) (Mailbox, error) { return box, &ParseError{Name: file, Err: err} }
	items := box.candidates(file, mails)
	if len(items) == 0 {
		return fail(fmt.Errorf("none of its %d mails has a patch: %s", len(mails), someOf(box.Skipped)))
	}
	if len(mails) == 1 {
		it := items[0]
		if it.tag.Of > 1 {
			box.Warnings = append(box.Warnings, fmt.Sprintf("%s: it is patch %d of %d, and the only one given", file, it.tag.N, it.tag.Of))
		}
	} else {
		var err error
		if items, err = box.newest(file, box.dropRepeats(items)); err != nil {
			return fail(err)
		}
	}
	for _, it := range items {
		p, err := it.patch()
		if err != nil {
			return box, err
		}
		box.Patches = append(box.Patches, p)
	}
	return box, nil
}

func (b *Mailbox) skip(m Mail, why string) {
	b.Skipped = append(b.Skipped, m.title()+": "+why)
}

// someOf is a list for a message, which a thread of hundreds would not fit in.
func someOf(list []string) string {
	const most = 5
	if n := len(list); n > most {
		return fmt.Sprintf("%s; and %d more", strings.Join(list[:most], "; "), n-most)
	}
	return strings.Join(list, "; ")
}

// candidates returns the mails with a patch. A reply with a diff is somebody's
// suggestion; it counts only where there is nothing else.
func (b *Mailbox) candidates(file string, mails []Mail) []item {
	var items, replies []item
	for _, m := range mails {
		tag := ParseTag(m.Subject())
		it := item{mail: m, file: file, tag: tag, title: cleanSubject(m.Subject())}
		switch {
		case tag.Of > 0 && tag.N == 0 && !tag.Reply:
			b.skip(m, "a cover letter")
		case !m.HasDiff() && tag.Reply:
			b.skip(m, "a reply")
		case !m.HasDiff():
			b.skip(m, m.noDiff())
		case tag.Reply:
			replies = append(replies, it)
		default:
			items = append(items, it)
		}
	}
	if len(items) == 0 {
		for i, it := range replies {
			// Its number is that of the patch it answers.
			replies[i].tag.N, replies[i].tag.Of = 0, 0
			b.Warnings = append(b.Warnings, fmt.Sprintf("%s: %s is a reply; its diff is used, as no other mail has one", file, it))
		}
		return replies
	}
	for _, it := range replies {
		b.skip(it.mail, "a reply with a diff of its own")
	}
	return b.marked(items)
}

// marked removes mails without a tag from among mails that have one: a report
// with a diff for trying, say. Where none has a tag, all are patches.
func (b *Mailbox) marked(items []item) []item {
	if !slices.ContainsFunc(items, func(it item) bool { return it.tag.Marked }) {
		return items
	}
	return slices.DeleteFunc(items, func(it item) bool {
		if !it.tag.Marked {
			const why = "a diff, but no [PATCH] in its subject, as others have"
			b.skip(it.mail, why)
			b.Warnings = append(b.Warnings, fmt.Sprintf("%s: %s is not used: %s", it.file, it, why))
		}
		return !it.tag.Marked
	})
}

// dropRepeats removes mails that came twice (by two lists, say), and patches
// without a number of which there is a newer version under the same title.
func (b *Mailbox) dropRepeats(items []item) []item {
	var kept []item
	first := map[string]int{} // number of the mail, by its id and content
	for _, it := range items {
		if id := it.mail.Header("Message-Id"); id != "" {
			key := fmt.Sprintf("%s %x", id, sha256.Sum256([]byte(it.mail.Text())))
			if n, ok := first[key]; ok {
				b.skip(it.mail, fmt.Sprintf("mail %d once more", n))
				continue
			}
			first[key] = it.mail.Number
		}
		kept = append(kept, it)
	}
	newest := map[string]release{}
	for _, it := range kept {
		if r, ok := newest[it.title]; it.tag.Of == 0 && (!ok || compareReleases(it.tag.release(), r) > 0) {
			newest[it.title] = it.tag.release()
		}
	}
	return slices.DeleteFunc(kept, func(it item) bool {
		r, ok := newest[it.title]
		old := ok && it.tag.Of == 0 && it.tag.release() != r
		if old {
			b.Warnings = append(b.Warnings, fmt.Sprintf("%s: %s is not used: %s of it is newer", it.file, it, r))
		}
		return old
	})
}

// newest returns the patches of the newest complete version, in order.
func (b *Mailbox) newest(file string, items []item) ([]item, error) {
	groups := map[release][]item{}
	for _, it := range items {
		groups[it.tag.release()] = append(groups[it.tag.release()], it)
	}
	releases := slices.SortedFunc(maps.Keys(groups), func(a, c release) int { return compareReleases(c, a) })
	if err := unnumbered(items, len(releases)); err != nil {
		return nil, err
	}
	var first error
	for i, r := range releases {
		ordered, err := order(groups[r])
		var missing *MissingError
		if errors.As(err, &missing) {
			missing.Version, missing.Skipped = r.String(), b.Skipped
			first = cmp.Or(first, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		b.warnOthers(file, r, releases, i)
		return ordered, nil
	}
	return nil, first
}

func (b *Mailbox) warnOthers(file string, r release, releases []release, at int) {
	for i, other := range releases {
		switch {
		case i < at:
			b.Warnings = append(b.Warnings, fmt.Sprintf("%s: %s of the series is not complete; %s is used", file, other, r))
		case i > at:
			b.Warnings = append(b.Warnings, fmt.Sprintf("%s: %s of the series is not used; %s is newer", file, other, r))
		}
	}
}

// unnumbered refuses patches of several versions that have neither numbers nor a
// title in common: they may be versions of one patch, or a series.
func unnumbered(items []item, releases int) error {
	if releases < 2 || slices.ContainsFunc(items, func(it item) bool { return it.tag.Of > 0 }) {
		return nil
	}
	byRelease := slices.SortedStableFunc(slices.Values(items), func(a, b item) int { return compareReleases(a.tag.release(), b.tag.release()) })
	a, z := byRelease[0], byRelease[len(byRelease)-1]
	return fmt.Errorf("%s and %s have no numbers and are of different versions: are they one patch? give only those that are wanted", a, z)
}

// MissingError says that a series has gaps.
type MissingError struct {
	Version string
	Numbers []int
	Of      int
	Skipped []string // mails that were no patches: one of them may be what is missing
}

func (e *MissingError) Error() string {
	var list []string
	for _, n := range e.Numbers {
		list = append(list, strconv.Itoa(n))
	}
	text := fmt.Sprintf("the series (%s) is not complete: %s of %d missing", e.Version, strings.Join(list, ", "), e.Of)
	for _, s := range e.Skipped {
		if strings.Contains(s, ": no diff in it") {
			text += "; " + s
		}
	}
	return text
}

// order sorts the patches of one version by number and demands that all of them
// are there once. Without numbers they stay as they came.
func order(items []item) ([]item, error) {
	of := items[0].tag.Of
	for _, it := range items[1:] {
		switch {
		case it.tag.Of == of:
		case it.tag.Of == 0 || of == 0:
			return nil, fmt.Errorf("%s and %s: one has a number and one has none: give a series alone", items[0], it)
		default:
			return nil, fmt.Errorf("%s and %s are of two series, of %d and of %d patches: give one", items[0], it, of, it.tag.Of)
		}
	}
	if of == 0 {
		return items, nil
	}
	byNumber := map[int]item{}
	for _, it := range items {
		if other, ok := byNumber[it.tag.N]; ok {
			return nil, fmt.Errorf("%s and %s are both %d of %d: give one of them", other, it, it.tag.N, of)
		}
		byNumber[it.tag.N] = it
	}
	// "[PATCH 4/3]" is how people add one more.
	last := max(of, slices.Max(slices.Collect(maps.Keys(byNumber))))
	e := &MissingError{Of: of}
	for n := 1; n <= min(last, MaxSeries); n++ {
		if _, ok := byNumber[n]; !ok {
			e.Numbers = append(e.Numbers, n)
		}
	}
	if last > MaxSeries {
		return nil, fmt.Errorf("a series of %d patches: at most %d are read", last, MaxSeries)
	}
	if len(e.Numbers) > 0 {
		return nil, e
	}
	return slices.SortedFunc(maps.Values(byNumber), func(a, b item) int { return cmp.Compare(a.tag.N, b.tag.N) }), nil
}
