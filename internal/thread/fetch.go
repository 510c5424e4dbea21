package thread

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/kbisect/kbisect/internal/series"
)

// DefaultLore is the server of the kernel's mailing lists.
const DefaultLore = "https://lore.kernel.org"

const maxRedirects = 5

// Lore is a public-inbox server. The zero value is DefaultLore.
type Lore struct {
	Base     string           // its address; lists are below it
	Client   *http.Client     // if nil, one with the environment's proxy; its CheckRedirect is not used
	MaxBytes int64            // of an answer, and of what it unpacks to; if 0, series.MaxMailbox
	Idle     time.Duration    // the longest wait for a byte; if 0, 30 s
	Progress func(done int64) // if not nil, is told how many bytes have come; called by Fetch's goroutine
}

// The reasons for which a thread cannot be fetched.
var (
	ErrNotFound  = errors.New("the server has no such message")
	ErrStatus    = errors.New("the server refused")
	ErrStalled   = errors.New("nothing came any more")
	ErrCutShort  = errors.New("what came is cut short")
	ErrNoMailbox = errors.New("what came is no mailbox")
	ErrTooLarge  = errors.New("the thread is too large")
	ErrRedirect  = errors.New("a redirect is not followed")
)

// FetchError says why a thread was not fetched. It wraps one of the reasons, the
// context's error, or the network's.
type FetchError struct {
	URL    string
	Status int // of HTTP; 0 if none came
	Err    error
}

func (e *FetchError) Error() string {
	text := fmt.Sprintf("fetch %s: %v", e.URL, e.Err)
	switch {
	case errors.Is(e.Err, context.Canceled):
		return text
	case errors.Is(e.Err, ErrNotFound):
		return text + "; check the Message-ID, name another server (--lore BASE), or save the thread as t.mbox.gz and give the file"
	case errors.Is(e.Err, ErrTooLarge):
		return text + "; save it as t.mbox.gz, cut it down, and give the file"
	}
	return text + "; try again, name another server (--lore BASE), or save the thread as t.mbox.gz and give the file"
}

func (e *FetchError) Unwrap() error { return e.Err }

// Fetch gets the mbox of the thread with a message, unpacked, for Parse. list
// may be "". It blocks until all of it is there, ctx is done, or no byte has come
// for Idle. The error is a *FetchError, unless base or id is none at all.
func (l Lore) Fetch(ctx context.Context, list, id string) ([]byte, error) {
	address, err := l.address(list, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := l.Idle
	if idle <= 0 {
		idle = 30 * time.Second
	}
	watch := time.AfterFunc(idle, func() { cancel(ErrStalled) })
	defer watch.Stop()
	data, status, err := l.get(ctx, address, func() { watch.Reset(idle) })
	if err == nil {
		return data, nil
	}
	// The network's error only says that the context has ended.
	if cause := context.Cause(ctx); errors.Is(cause, ErrStalled) {
		err = fmt.Errorf("%w for %v", ErrStalled, idle)
	} else if cause != nil {
		err = cause
	}
	var failed *url.Error // has the address in its text once more
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return nil, &FetchError{URL: address, Status: status, Err: err}
}

var listName = regexp.MustCompile(`^[A-Za-z0-9][\w.+-]*$`)

func (l Lore) address(list, id string) (string, error) {
	base := l.Base
	if base == "" {
		base = DefaultLore
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("fetch thread: %q is no address of a server: give one such as %s", base, DefaultLore)
	}
	if list == "" {
		list = "all"
	}
	if !isID(id) || !listName.MatchString(list) {
		return "", fmt.Errorf("fetch thread: list %q, Message-ID %q: one of them cannot be: give <ID>, or the address of the message", list, id)
	}
	return strings.TrimRight(base, "/") + "/" + list + "/" + escapeID(id) + "/t.mbox.gz", nil
}

// get asks for the thread. alive is called whenever something came.
func (l Lore) get(ctx context.Context, address string, alive func()) (data []byte, status int, err error) {
	client := http.Client{Transport: http.DefaultTransport}
	if l.Client != nil {
		client = *l.Client
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		own := t.Clone()
		defer own.CloseIdleConnections()
		client.Transport = own
	}
	client.CheckRedirect = checkRedirect
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("User-Agent", "kbisect")
	// The file is in gzip itself; one layer is enough.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	alive()
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone || resp.StatusCode == http.StatusMultipleChoices:
		return nil, resp.StatusCode, fmt.Errorf("%w (%s)", ErrNotFound, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, resp.StatusCode, fmt.Errorf("%w: %s", ErrStatus, resp.Status)
	}
	data, err = l.receive(resp, alive)
	return data, resp.StatusCode, err
}

// checkRedirect follows a list's move, and to HTTPS; the answer must stay the
// thread's mailbox, and no page that asks to log in.
func checkRedirect(req *http.Request, via []*http.Request) error {
	last := via[len(via)-1].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("%w: there are more than %d", ErrRedirect, maxRedirects)
	case req.URL.Scheme != last.Scheme && req.URL.Scheme != "https":
		return fmt.Errorf("%w: it leads from %s to %q", ErrRedirect, last.Scheme, req.URL)
	case !strings.HasSuffix(req.URL.Path, "/t.mbox.gz"):
		return fmt.Errorf("%w: it leads to %q, which is no thread's mailbox", ErrRedirect, req.URL)
	}
	return nil
}

// receive reads an answer and unpacks it.
func (l Lore) receive(resp *http.Response, alive func()) ([]byte, error) {
	limit := l.MaxBytes
	if limit <= 0 {
		limit = series.MaxMailbox
	}
	if resp.ContentLength > limit {
		return nil, fmt.Errorf("%w: %d bytes, and %d are read", ErrTooLarge, resp.ContentLength, limit)
	}
	packed, err := readAtMost(&counter{r: resp.Body, alive: alive, progress: l.Progress}, limit)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%w: %d of %d bytes", ErrCutShort, len(packed), resp.ContentLength)
	}
	if err != nil {
		return nil, err
	}
	data := packed
	if bytes.HasPrefix(packed, []byte("\x1f\x8b")) {
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err == nil {
			data, err = readAtMost(z, limit)
		}
		if errors.Is(err, ErrTooLarge) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("%w: unpack %d bytes: %w", ErrCutShort, len(packed), err)
		}
	}
	if !bytes.HasPrefix(data, []byte("From ")) {
		kind := resp.Header.Get("Content-Type")
		return nil, fmt.Errorf("%w but %d bytes of %q: a page for people, perhaps", ErrNoMailbox, len(data), kind)
	}
	return data, nil
}

func readAtMost(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return data, err
}

// counter tells of every piece that comes.
type counter struct {
	r        io.Reader
	done     int64
	alive    func()
	progress func(int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if n > 0 {
		c.done += int64(n)
		c.alive()
		if c.progress != nil {
			c.progress(c.done)
		}
	}
	return n, err
}
