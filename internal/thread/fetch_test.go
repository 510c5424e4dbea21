package thread

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRef(t *testing.T) {
	for _, tc := range []struct{ in, base, list, id string }{
		{"<a@b.org>", "", "", "a@b.org"},
		{" a@b.org\n", "", "", "a@b.org"},
		{"20240101.1-a@b.org", "", "", "20240101.1-a@b.org"},
		{"<a/b@c>", "", "", "a/b@c"},
		{"https://lore.example.org/netdev/a@b.org/", "https://lore.example.org", "netdev", "a@b.org"},
		{"https://lore.example.org/netdev/a@b.org", "https://lore.example.org", "netdev", "a@b.org"},
		{"https://lore.example.org/netdev/a@b.org/t.mbox.gz", "https://lore.example.org", "netdev", "a@b.org"},
		{"https://lore.example.org/netdev/a@b.org/raw", "https://lore.example.org", "netdev", "a@b.org"},
		{"https://lore.example.org/netdev/a@b.org/T/#u", "https://lore.example.org", "netdev", "a@b.org"},
		{"https://lore.example.org/netdev/a%2Fb@c.org/#r", "https://lore.example.org", "netdev", "a/b@c.org"},
		{"https://lore.example.org/all/a@b.org/", "https://lore.example.org", "", "a@b.org"},
		{"https://lore.example.org/r/a@b.org", "https://lore.example.org", "", "a@b.org"},
		{"https://lore.example.org/a@b.org", "https://lore.example.org", "", "a@b.org"},
		{"http://127.0.0.1:80/pub/lists/x.y/a@b/", "http://127.0.0.1:80/pub/lists", "x.y", "a@b"},
		{"<https://lore.example.org/x/a@b>", "https://lore.example.org", "x", "a@b"},
		{"https://lkml.kernel.org/r/a@b.org", "", "", "a@b.org"},
		{"https://patch.msgid.link/a@b.org", "", "", "a@b.org"},
	} {
		base, list, id, ok := RefURL(tc.in)
		if !ok || base != tc.base || list != tc.list || id != tc.id {
			t.Errorf("%q: %q %q %q %t", tc.in, base, list, id, ok)
		}
		if l, i, ok := Ref(tc.in); !ok || l != tc.list || i != tc.id {
			t.Errorf("Ref(%q): %q %q %t", tc.in, l, i, ok)
		}
	}
	for _, in := range []string{"", "thread.mbox", "mails/a@b.eml", "a@", "@b", "a b@c", "<a@b", "ftp://x/y/a@b", "https://x.org/netdev/", "https://x.org/%zz@b/", "a@b" + strings.Repeat("c", 1000)} {
		if list, id, ok := Ref(in); ok {
			t.Errorf("%q: %q %q", in, list, id)
		}
	}
}

// inbox is a server that behaves as public-inbox does, or badly, by its lists.
func inbox(t *testing.T, mbox []byte) *httptest.Server {
	packed := zip(t, mbox)
	mux := http.NewServeMux()
	serve := func(w http.ResponseWriter, data []byte) {
		w.Header().Set("Content-Type", "application/gzip")
		if _, err := w.Write(data); err != nil {
			t.Logf("write: %v", err)
		}
	}
	mux.HandleFunc("/net/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "identity" || r.URL.EscapedPath() != "/net/a%2Fb+c@x.org/t.mbox.gz" && r.URL.Path != "/net/a@b/t.mbox.gz" {
			http.NotFound(w, r)
			return
		}
		serve(w, packed)
	})
	mux.HandleFunc("/plain/", func(w http.ResponseWriter, r *http.Request) { serve(w, mbox) })
	mux.HandleFunc("/all/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/net/"+strings.TrimPrefix(r.URL.EscapedPath(), "/all/"), http.StatusMovedPermanently)
	})
	mux.HandleFunc("/loop/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.EscapedPath(), http.StatusFound)
	})
	mux.HandleFunc("/login/", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login.html", http.StatusFound) })
	mux.HandleFunc("/scheme/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "ftp://x/y/t.mbox.gz")
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/broken/", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	mux.HandleFunc("/short/", func(w http.ResponseWriter, r *http.Request) { serve(w, packed[:len(packed)/2]) })
	mux.HandleFunc("/cut/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(packed)))
		serve(w, packed[:len(packed)/2])
	})
	mux.HandleFunc("/html/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html><body>Are you a robot?</body></html>")
	})
	mux.HandleFunc("/empty/", func(w http.ResponseWriter, r *http.Request) {})
	mux.HandleFunc("/large/", func(w http.ResponseWriter, r *http.Request) { serve(w, make([]byte, 1<<20)) })
	mux.HandleFunc("/bomb/", func(w http.ResponseWriter, r *http.Request) { serve(w, zip(t, make([]byte, 1<<20))) })
	// It sends a byte now and then, but never all.
	mux.HandleFunc("/slow/", func(w http.ResponseWriter, r *http.Request) {
		serve(w, packed[:10])
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		<-r.Context().Done()
	})
	mux.HandleFunc("/silent/", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestFetch(t *testing.T) {
	mbox := largeThread(500)
	s := inbox(t, mbox)
	var done int64
	for _, tc := range []struct{ list, id string }{{"net", "a/b+c@x.org"}, {"net", "a@b"}, {"", "a/b+c@x.org"}, {"plain", "a@b"}} {
		l := Lore{Base: s.URL + "/", Progress: func(n int64) { done = n }}
		data, err := l.Fetch(t.Context(), tc.list, tc.id)
		if err != nil {
			t.Errorf("%+v: %v", tc, err)
			continue
		}
		if string(data) != string(mbox) || done == 0 {
			t.Errorf("%+v: %d bytes of %d, progress %d", tc, len(data), len(mbox), done)
		}
	}
	data, err := Lore{Base: s.URL}.Fetch(t.Context(), "net", "a@b")
	if err != nil {
		t.Fatal(err)
	}
	if th, err := Parse("thread", data); err != nil || len(th.Messages) != 500 || len(th.Series) != 1 {
		t.Errorf("%v", err)
	}
	// A client of the caller's.
	if _, err := (Lore{Base: s.URL, Client: s.Client()}).Fetch(t.Context(), "net", "a@b"); err != nil {
		t.Error(err)
	}
}

func TestFetchErrors(t *testing.T) {
	s := inbox(t, largeThread(3))
	for _, tc := range []struct {
		list, id string
		want     error
		status   int
		advice   string
	}{
		{"net", "none@b", ErrNotFound, 404, "check the Message-ID"},
		{"nolist", "a@b", ErrNotFound, 404, "--lore BASE"},
		{"broken", "a@b", ErrStatus, 500, "try again"},
		{"short", "a@b", ErrCutShort, 200, "try again"},
		{"cut", "a@b", ErrCutShort, 200, "try again"},
		{"html", "a@b", ErrNoMailbox, 200, "give the file"},
		{"empty", "a@b", ErrNoMailbox, 200, "give the file"},
		{"large", "a@b", ErrTooLarge, 200, "cut it down"},
		{"bomb", "a@b", ErrTooLarge, 200, "cut it down"},
		{"loop", "a@b", ErrRedirect, 0, "give the file"},
		{"login", "a@b", ErrRedirect, 0, "login.html"},
		{"scheme", "a@b", ErrRedirect, 0, "ftp"},
		{"slow", "a@b", ErrStalled, 200, "try again"},
		{"silent", "a@b", ErrStalled, 0, "try again"},
	} {
		l := Lore{Base: s.URL, MaxBytes: 100 << 10}
		if tc.want == ErrStalled {
			l.Idle = time.Second
		}
		data, err := l.Fetch(t.Context(), tc.list, tc.id)
		var f *FetchError
		if data != nil || !errors.As(err, &f) || !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.advice) {
			t.Errorf("%s: %v", tc.list, err)
			continue
		}
		if f.URL != s.URL+"/"+tc.list+"/"+tc.id+"/t.mbox.gz" || f.Status != tc.status && tc.want != ErrStalled || strings.Count(err.Error(), s.URL) != 1 && tc.want != ErrRedirect {
			t.Errorf("%s: %+v, %v", tc.list, f, err)
		}
	}
}

// TestFetchEnds has a caller who gives up, and servers that cannot be.
func TestFetchEnds(t *testing.T) {
	s := inbox(t, largeThread(1))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := (Lore{Base: s.URL}).Fetch(ctx, "slow", "a@b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	if _, err := (Lore{Base: s.URL}).Fetch(ctx, "silent", "a@b"); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "--lore") {
		t.Errorf("cancel: %v", err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if _, err := (Lore{Base: gone.URL}).Fetch(t.Context(), "", "a@b"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("no server: %v", err)
	}
	for _, base := range []string{"lore", "ftp://x", "https://x?y", "http://", "https://%zz"} {
		if _, err := (Lore{Base: base}).Fetch(t.Context(), "", "a@b"); err == nil || !strings.Contains(err.Error(), "no address") {
			t.Errorf("%q: %v", base, err)
		}
	}
	for _, ref := range [][2]string{{"", ""}, {"", "a"}, {"../x", "a@b"}, {"a b", "a@b"}} {
		if _, err := (Lore{Base: s.URL}).Fetch(t.Context(), ref[0], ref[1]); err == nil {
			t.Errorf("%q was asked for", ref)
		}
	}
}

func TestAddress(t *testing.T) {
	address, err := Lore{}.address("", "x y@z")
	if err == nil {
		t.Errorf("%q", address)
	}
	if address, err = (Lore{}).address("", "x?y%/z@a"); err != nil || address != DefaultLore+"/all/x%3Fy%25%2Fz@a/t.mbox.gz" {
		t.Errorf("%q, %v", address, err)
	}
}
