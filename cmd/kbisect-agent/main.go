// Command kbisect-agent runs one workload in the guest and writes what it
// measured to its standard output, as records of package guest/proto.
//
//	kbisect-agent -workload netdev-delete,count=100 -nonce 4f1c... -limit 60s
//
// It exits with 0 after a done record, 1 after a fail record, 2 on wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kbisect/kbisect/guest/agent"
)

func main() {
	start := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, start, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errUsage), errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "kbisect-agent: %v\n", err)
		os.Exit(1)
	}
}

// errUsage says that the flags were wrong; the text is on stderr by then.
var errUsage = errors.New("usage")

func run(ctx context.Context, start time.Time, args []string, stdout, stderr io.Writer) error {
	cfg := agent.Config{Start: start}
	fs := flag.NewFlagSet("kbisect-agent", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&cfg.Spec, "workload", "", "what to run: `name[,key=value...]`")
	fs.StringVar(&cfg.Nonce, "nonce", "", "text that the done record repeats")
	fs.DurationVar(&cfg.Limit, "limit", 0, "report what is not done by then as censored (0: never)")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errUsage
	case fs.NArg() > 0 || cfg.Spec == "" || cfg.Nonce == "" || cfg.Limit < 0:
		fmt.Fprintln(stderr, "kbisect-agent: wants -workload and -nonce, and nothing behind the flags")
		fs.Usage()
		return errUsage
	}
	return agent.Run(ctx, cfg, stdout)
}
