package vmtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/vm"
)

func TestMachine(t *testing.T) {
	boom := errors.New("boom")
	m := &Machine{
		ExecFunc:   func(context.Context, vm.Command) error { return boom },
		EventsSent: []vm.Event{{Kind: vm.EventWarning}},
	}
	if err := m.Exec(t.Context(), vm.Command{Argv: []string{"x"}}); err != boom || len(m.Execs()) != 1 {
		t.Errorf("Exec = %v, %d recorded", err, len(m.Execs()))
	}
	if err := m.Put(t.Context(), strings.NewReader("body"), 4, "/a", 0o600); err != nil || string(m.File("/a")) != "body" {
		t.Errorf("Put = %v, file %q", err, m.File("/a"))
	}
	if err := m.Put(t.Context(), strings.NewReader("body"), 5, "/b", 0o600); err == nil || m.File("/b") != nil {
		t.Errorf("short Put = %v", err)
	}
	if e := <-m.Events(); e.Kind != vm.EventWarning {
		t.Errorf("event %v", e)
	}
	m.Close()
	m.Close()
	if _, open := <-m.Events(); open || !m.Closed() {
		t.Error("still open after Close")
	}
	var infra *vm.InfraError
	if err := m.Exec(t.Context(), vm.Command{}); !errors.As(err, &infra) {
		t.Errorf("Exec after Close = %v", err)
	}
}
