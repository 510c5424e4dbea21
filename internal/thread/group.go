package thread

import (
	"cmp"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kbisect/kbisect/internal/series"
)

// Series is one version of a series of patches; a single patch is one too.
type Series struct {
	Subject string // the cover's title, or the first patch's
	Version int
	Resend  bool
	Of      int      // 1 if it has no numbers
	Patches []Patch  // by their numbers
	Missing []int    // numbers of which the thread has no patch
	Cover   *Message // nil if there is none
	Newest  bool     // Choose(0) returns it
}

// String names the series: its version, its size and its title.
func (s *Series) String() string {
	text := fmt.Sprintf("v%d", s.Version)
	if s.Resend {
		text += " RESEND"
	}
	return fmt.Sprintf("%s of %q (%d of %d patches)", text, s.Subject, len(s.Patches), max(s.Of, len(s.Patches)))
}

func (s *Series) tag() series.Tag { return series.Tag{Version: s.Version, Resend: s.Resend} }

// ErrNoSeries says that the thread has no series that could be chosen.
var ErrNoSeries = errors.New("the thread has no complete series")

// Choose returns the newest complete series; if version is not 0, the newest of
// that version. The error wraps ErrNoSeries and says what there is.
func (t *Thread) Choose(version int) (*Series, error) { return t.ChooseSubject(version, "") }

// ChooseSubject is Choose among the series with text in their subject, in upper
// or lower case.
func (t *Thread) ChooseSubject(version int, text string) (*Series, error) {
	var best *Series
	for i := range t.Series {
		s := &t.Series[i]
		if len(s.Missing) > 0 || version != 0 && s.Version != version || !strings.Contains(strings.ToLower(s.Subject), strings.ToLower(text)) {
			continue
		}
		if best == nil || t.newer(s, best) {
			best = s
		}
	}
	if best == nil {
		return nil, t.noSeries()
	}
	return best, nil
}

// noSeries says what there is instead.
func (t *Thread) noSeries() error {
	var have []string
	for i := range t.Series {
		s := &t.Series[i]
		text := s.String()
		if len(s.Missing) > 0 {
			text += ", without " + numbers(s.Missing)
		}
		have = append(have, text)
	}
	if n := len(t.FollowUp); n > 0 {
		have = append(have, fmt.Sprintf("%d diffs in replies", n))
	}
	const most = 10
	if len(have) > most {
		have = append(have[:most], "...")
	}
	if len(have) == 0 {
		return fmt.Errorf("%w: no patch is in it, or only quoted ones", ErrNoSeries)
	}
	return fmt.Errorf("%w that was asked for; it has %s", ErrNoSeries, strings.Join(have, "; "))
}

func numbers(list []int) string {
	const most = 20
	var text []string
	for _, n := range list[:min(len(list), most)] {
		text = append(text, strconv.Itoa(n))
	}
	if len(list) > most {
		text = append(text, "...")
	}
	return strings.Join(text, ", ")
}

// newer orders two series. Of one title, the version says it; of two, the date,
// or where a page shows none, the place in the thread.
func (t *Thread) newer(a, b *Series) bool {
	if strings.EqualFold(a.Subject, b.Subject) {
		if c := series.CompareTags(a.tag(), b.tag()); c != 0 {
			return c > 0
		}
	}
	x, okX := date(a.Patches[0].Date)
	y, okY := date(b.Patches[0].Date)
	if okX && okY && !x.Equal(y) {
		return x.After(y)
	}
	return a.Patches[0].Message > b.Patches[0].Message
}

// date reads a date of a mail, or of public-inbox's pages.
func date(s string) (time.Time, bool) {
	if t, err := mail.ParseDate(strings.Join(strings.Fields(s), " ")); err == nil {
		return t, true
	}
	t, err := time.Parse("2006-01-02 15:04", strings.TrimSuffix(strings.Join(strings.Fields(s), " "), " UTC"))
	return t, err == nil
}

// group makes series of the patches.
func (t *Thread) group(list []*message, patches []*found) {
	g := grouper{byID: map[string]*group{}, open: map[string][]*group{}}
	for _, m := range list {
		if m.Kind == KindCover {
			g.cover(m)
		}
	}
	for _, p := range patches {
		if p.FollowUp {
			t.FollowUp = append(t.FollowUp, p.Patch)
			continue
		}
		g.add(p)
	}
	for _, gr := range g.list {
		if len(gr.patches) > 0 {
			t.Series = append(t.Series, gr.series())
		}
	}
	slices.SortStableFunc(t.Series, func(a, b Series) int { return cmp.Compare(first(a), first(b)) })
	newest, err := t.Choose(0)
	if err == nil {
		newest.Newest = true
	}
	for i := range t.Series {
		switch s := &t.Series[i]; {
		case len(s.Missing) > 0:
			t.warn("%s is not complete: no patch %s", s, numbers(s.Missing))
		case newest != nil && !s.Newest:
			t.warn("%s is not the newest: %s is", s, newest)
		}
	}
}

func first(s Series) int {
	return slices.MinFunc(s.Patches, func(a, b Patch) int { return cmp.Compare(a.Message, b.Message) }).Message
}

// group is a series while it is being collected.
type group struct {
	tag     series.Tag
	cover   *Message
	patches map[int]Patch // by number
	last    int           // largest number
}

type grouper struct {
	list []*group
	byID map[string]*group   // the series a mail belongs to
	open map[string][]*group // those with a version, a size and a sender
}

// key tells series of one thread apart as far as a subject and a sender do.
func key(m *message) string {
	return fmt.Sprintf("%d %t %d %s", m.tag.Version, m.tag.Resend, m.tag.Of, strings.ToLower(m.Author))
}

func (g *grouper) start(m *message) *group {
	gr := &group{tag: m.tag, patches: map[int]Patch{}}
	g.list = append(g.list, gr)
	g.open[key(m)] = append(g.open[key(m)], gr)
	return gr
}

func (g *grouper) cover(m *message) {
	gr := g.start(m)
	letter := m.Message // without its text, which is not to be kept
	gr.cover = &letter
	if m.ID != "" {
		g.byID[m.ID] = gr
	}
}

// add puts a patch into the series of the mail it answers if that is one of its
// version; else into one of its sender that has room for its number.
func (g *grouper) add(p *found) {
	m := p.msg
	number := m.tag.N
	var gr *group
	if m.tag.Of == 0 {
		number = 1
	} else {
		gr = g.find(m)
	}
	if gr == nil {
		gr = g.start(m)
	}
	gr.patches[number] = p.Patch
	gr.last = max(gr.last, number)
	if m.ID != "" {
		g.byID[m.ID] = gr
	}
}

func (g *grouper) find(m *message) *group {
	fits := func(gr *group) bool {
		_, taken := gr.patches[m.tag.N]
		return !taken && gr.tag.Of == m.tag.Of && series.CompareTags(gr.tag, m.tag) == 0
	}
	if gr := g.byID[m.InReplyTo]; m.InReplyTo != "" && gr != nil && fits(gr) {
		return gr
	}
	// The oldest that has room: those of a page come one after another.
	for _, gr := range g.open[key(m)] {
		if fits(gr) {
			return gr
		}
	}
	return nil
}

func (gr *group) series() Series {
	s := Series{Version: gr.tag.Version, Resend: gr.tag.Resend, Of: max(gr.tag.Of, 1), Cover: gr.cover}
	// "[PATCH 4/3]" is how people add one more.
	for n := 1; n <= min(max(s.Of, gr.last), series.MaxSeries); n++ {
		if p, ok := gr.patches[n]; ok {
			s.Patches = append(s.Patches, p)
		} else {
			s.Missing = append(s.Missing, n)
		}
	}
	if len(s.Patches) == 0 { // a number that is beyond all bounds
		for _, p := range gr.patches {
			s.Patches = append(s.Patches, p)
		}
		slices.SortFunc(s.Patches, func(a, b Patch) int { return cmp.Compare(a.N, b.N) })
	}
	s.Subject = s.Patches[0].Subject
	if gr.cover != nil {
		s.Subject = series.Title(gr.cover.Subject)
	}
	return s
}
