package main

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/guest/agent"
	"github.com/kbisect/kbisect/guest/proto"
)

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want error
	}{
		{"", errUsage},
		{"-workload netdev-delete", errUsage},
		{"-nonce n", errUsage},
		{"-workload netdev-delete -nonce n extra", errUsage},
		{"-workload netdev-delete -nonce n -limit -1s", errUsage},
		{"-workload netdev-delete -nonce n -limit soon", errUsage},
		{"-nonsense", errUsage},
		{"-h", flag.ErrHelp},
	} {
		var out, errOut bytes.Buffer
		if err := run(t.Context(), time.Now(), strings.Fields(c.args), &out, &errOut); !errors.Is(err, c.want) {
			t.Errorf("%q: got %v, want %v", c.args, err, c.want)
		}
		if out.Len() != 0 || errOut.Len() == 0 {
			t.Errorf("%q: stdout %q, stderr %q: usage belongs on stderr", c.args, &out, &errOut)
		}
	}
}

func TestFailRecordReachesStdout(t *testing.T) {
	var out, errOut bytes.Buffer
	err := run(t.Context(), time.Now(), []string{"-workload", "netdev-delete,cuont=1", "-nonce", "n"}, &out, &errOut)
	if !errors.Is(err, agent.ErrFailed) {
		t.Errorf("got %v", err)
	}
	rep, err := proto.Collect(&out, "n", nil)
	if err != nil || rep.Fail == nil || !strings.Contains(rep.Fail.Text, `"count"`) {
		t.Errorf("%+v, %v", rep, err)
	}
}
