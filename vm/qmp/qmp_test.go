package qmp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kbisect/kbisect/vm/qmp"
	"github.com/kbisect/kbisect/vm/vmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a connected client of a fake server.
func connect(t *testing.T, o qmp.Options, handle func(*vmtest.QMP, vmtest.QMPCommand)) *qmp.Client {
	t.Helper()
	c := qmp.New(vmtest.StartQMP(t, vmtest.Greeting, handle), o)
	t.Cleanup(func() { c.Disconnect() })
	if err := c.Connect(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConnect(t *testing.T) {
	c := connect(t, qmp.Options{}, nil)
	if got := c.Version().String(); got != "7.2.9" {
		t.Errorf("Version = %s", got)
	}
	if err := c.Connect(); err == nil {
		t.Error("second Connect: no error")
	}
	for range 2 {
		if err := c.Disconnect(); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Run([]byte(`{"execute":"stop"}`)); !errors.Is(err, qmp.ErrClosed) {
		t.Errorf("Run after Disconnect: %v, want ErrClosed", err)
	}
}

// TestInterleaved guards digitalocean/go-qemu#226: an event around a reply.
func TestInterleaved(t *testing.T) {
	c := connect(t, qmp.Options{Events: 10_000}, func(q *vmtest.QMP, c vmtest.QMPCommand) {
		q.Event("BEFORE")
		q.Return(c, fmt.Sprintf("%q", c.Arguments))
		q.Event("AFTER")
	})
	events, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				var got string
				want := fmt.Sprintf(`{"n":%d}`, i*1000+j)
				err := c.Do(context.Background(), "echo", map[string]int{"n": i*1000 + j}, &got)
				if err != nil || got != want {
					t.Errorf("echo %s = %s, %v", want, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
	c.Disconnect()
	n := 0
	for e := range events {
		if e.Event != "BEFORE" && e.Event != "AFTER" {
			t.Errorf("event %q", e.Event)
		}
		n++
	}
	// The AFTER of Connect may come after we subscribed, the last AFTER
	// after the end.
	if n < 799 || n > 801 {
		t.Errorf("%d events, want about 800", n)
	}
}

// TestEventBeforeCapabilities guards digitalocean/go-qemu#210.
func TestEventBeforeCapabilities(t *testing.T) {
	conn := vmtest.StartQMP(t, "", func(q *vmtest.QMP, c vmtest.QMPCommand) { q.Return(c, `"`+c.Execute+`"`) })
	c := qmp.New(&prefixed{Conn: conn, prefix: []byte(event("EARLY") + vmtest.Greeting + "\r\n" + event("NEXT"))}, qmp.Options{})
	defer c.Disconnect()
	events, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := c.Do(t.Context(), "query-name", nil, &got); err != nil || got != "query-name" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, want := range []string{"EARLY", "NEXT"} {
		if e := <-events; e.Event != want || e.Timestamp.Seconds != 1 {
			t.Errorf("event %+v, want %s", e, want)
		}
	}
}

func event(name string) string {
	return fmt.Sprintf(`{"event": %q, "timestamp": {"seconds": 1, "microseconds": 2}}`+"\n", name)
}

// prefixed is a connection that first reads as prefix.
type prefixed struct {
	net.Conn
	prefix []byte
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.prefix) > 0 {
		n := copy(b, p.prefix)
		p.prefix = p.prefix[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// TestHugeReply guards digitalocean/go-qemu#159.
func TestHugeReply(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	handle := func(q *vmtest.QMP, c vmtest.QMPCommand) {
		if c.Execute == "qmp_capabilities" {
			q.Return(c, "{}")
			return
		}
		q.Return(c, `"`+big+`"`)
	}
	var got string
	c := connect(t, qmp.Options{}, handle)
	if err := c.Do(t.Context(), "x", nil, &got); err != nil || got != big {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	c = connect(t, qmp.Options{MaxLine: 1 << 16}, handle)
	if err := c.Do(t.Context(), "x", nil, &got); !errors.Is(err, qmp.ErrProtocol) {
		t.Errorf("over MaxLine: %v, want ErrProtocol", err)
	}
}

func TestRefusal(t *testing.T) {
	c := connect(t, qmp.Options{}, func(q *vmtest.QMP, c vmtest.QMPCommand) {
		if c.Execute == "bad" {
			q.Refuse(c, "no such thing")
			return
		}
		q.Return(c, "{}")
	})
	_, err := c.Run([]byte(`{"execute": "bad", "id": 7}`))
	var refused *qmp.Error
	if !errors.As(err, &refused) || refused.Desc != "no such thing" || refused.Class != "GenericError" {
		t.Errorf("err = %v", err)
	}
	for _, bad := range []string{"", "x", "[]", "{}", `{"execute": "a"} {}`} {
		if _, err := c.Run([]byte(bad)); err == nil {
			t.Errorf("Run(%q): no error", bad)
		}
	}
	if out, err := c.Run([]byte(`{"execute": "good"}`)); err != nil || !strings.Contains(string(out), `"return"`) {
		t.Errorf("after refusals: %s, %v", out, err)
	}
}

// TestSilentServer guards digitalocean/go-qemu#206 and #214.
func TestSilentServer(t *testing.T) {
	silent := func(*vmtest.QMP, vmtest.QMPCommand) {}
	short := qmp.Options{Timeout: 30 * time.Millisecond}
	for name, greeting := range map[string]string{"no greeting": "", "no capabilities": vmtest.Greeting} {
		c := qmp.New(vmtest.StartQMP(t, greeting, silent), short)
		if err := c.Connect(); !errors.Is(err, qmp.ErrTimeout) {
			t.Errorf("%s: %v, want ErrTimeout", name, err)
		}
		c.Disconnect()
	}
	c := connect(t, short, func(q *vmtest.QMP, c vmtest.QMPCommand) {
		if c.Execute == "qmp_capabilities" {
			q.Return(c, "{}")
		}
	})
	for range 2 { // broken for good
		if _, err := c.Run([]byte(`{"execute": "stop"}`)); !errors.Is(err, qmp.ErrTimeout) {
			t.Errorf("Run: %v, want ErrTimeout", err)
		}
	}
	<-c.Done()
}

// TestNobodyReads: a peer whose socket is full must not block a sender for ever.
func TestNobodyReads(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	go func() { _, _ = server.Write([]byte(vmtest.Greeting + "\n")) }()
	c := qmp.New(client, qmp.Options{Timeout: 30 * time.Millisecond})
	defer c.Disconnect()
	if err := c.Connect(); !errors.Is(err, qmp.ErrTimeout) {
		t.Errorf("Connect = %v, want ErrTimeout", err)
	}
}

func TestGivenUp(t *testing.T) {
	release := make(chan struct{})
	c := connect(t, qmp.Options{}, func(q *vmtest.QMP, c vmtest.QMPCommand) {
		if c.Execute == "slow" {
			<-release
		}
		q.Return(c, `"`+c.Execute+`"`)
	})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := c.Do(ctx, "slow", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	close(release)
	var got string
	if err := c.Do(t.Context(), "fast", nil, &got); err != nil || got != "fast" {
		t.Errorf("the late reply shifted the next: %q, %v", got, err)
	}
}

func TestGarbage(t *testing.T) {
	for _, line := range []string{
		"\x00\xff\x80", "SSH-2.0-x", "[1]", `{"return": {}}`, `{"id": "1"}`, `{"id": 5, "return": {}}`,
		`{"event": {"a": 1}}`, `{"event": "X", "timestamp": []}`, vmtest.Greeting,
		`{"error": {"class": "GenericError", "desc": "JSON parse error"}}`,
	} {
		c := connect(t, qmp.Options{}, func(q *vmtest.QMP, c vmtest.QMPCommand) {
			if c.Execute != "qmp_capabilities" {
				q.Raw(line)
				return
			}
			q.Return(c, "{}")
		})
		if _, err := c.Run([]byte(`{"execute": "stop"}`)); !errors.Is(err, qmp.ErrProtocol) {
			t.Errorf("%q: %v, want ErrProtocol", line, err)
		}
	}
}

func TestServerGone(t *testing.T) {
	c := connect(t, qmp.Options{}, func(q *vmtest.QMP, c vmtest.QMPCommand) {
		if c.Execute == "quit" {
			q.Close()
			return
		}
		q.Return(c, "{}")
	})
	events, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run([]byte(`{"execute": "quit"}`)); !errors.Is(err, qmp.ErrClosed) {
		t.Errorf("err = %v, want ErrClosed", err)
	}
	<-c.Done()
	if _, open := <-events; open {
		t.Error("event channel still open")
	}
	if _, err := c.Events(t.Context()); err == nil {
		t.Error("Events of a dead monitor: no error")
	}
}

// TestUnreadEvents: go-qemu's Run blocks for ever when Events has no reader.
func TestUnreadEvents(t *testing.T) {
	c := connect(t, qmp.Options{Events: 4}, func(q *vmtest.QMP, c vmtest.QMPCommand) {
		if c.Execute == "burst" {
			for i := range 10 {
				q.Event(fmt.Sprint("E", i))
			}
		}
		q.Return(c, "{}")
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := c.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), "burst", nil, nil); err != nil {
		t.Fatal(err)
	}
	if c.Dropped() != 6 {
		t.Errorf("Dropped = %d, want 6", c.Dropped())
	}
	cancel()
	var got []qmp.Event
	for e := range events {
		got = append(got, e)
	}
	if len(got) != 4 || got[0].Event != "E0" {
		t.Errorf("kept %v, want the oldest four", got)
	}
}

func TestDisconnectUnconnected(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	c := qmp.New(client, qmp.Options{})
	if _, err := c.Run([]byte(`{"execute": "stop"}`)); err == nil {
		t.Error("Run before Connect: no error")
	}
	events, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Disconnect()
	c.Disconnect()
	if _, open := <-events; open {
		t.Error("event channel still open")
	}
}

// FuzzClient lets the server say anything after the capabilities.
func FuzzClient(f *testing.F) {
	f.Add([]byte(event("X") + `{"return": {}, "id": "2"}` + "\n"))
	f.Add([]byte("{\"return\": 1, \"id\": \"2\"}\r\n\n\n{}"))
	f.Add([]byte(`{"error": {}, "id": "2"}` + "\n" + vmtest.Greeting + "\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		c := connect(t, qmp.Options{Timeout: 2 * time.Second, MaxLine: 4096}, func(q *vmtest.QMP, c vmtest.QMPCommand) {
			if c.Execute == "qmp_capabilities" {
				q.Return(c, "{}")
				return
			}
			q.Raw(string(answer))
			q.Close()
		})
		out, err := c.Run([]byte(`{"execute": "x"}`))
		if (out == nil) == (err == nil) {
			t.Errorf("Run = %q, %v", out, err)
		}
		if errors.Is(err, qmp.ErrTimeout) {
			t.Error("a closed connection was waited for")
		}
	})
}

// BenchmarkRun is one command and its reply.
func BenchmarkRun(b *testing.B) {
	c := qmp.New(vmtest.StartQMP(b, vmtest.Greeting, nil), qmp.Options{})
	defer c.Disconnect()
	if err := c.Connect(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := c.Run([]byte(`{"execute": "query-status"}`)); err != nil {
			b.Fatal(err)
		}
	}
}
