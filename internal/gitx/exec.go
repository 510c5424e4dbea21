package gitx

import (
	"context"

	"github.com/kbisect/kbisect/internal/proc"
)

// command is a git child that ends with ctx and with us. SIGTERM first: git
// then removes its lock files.
func command(ctx context.Context, name string, args ...string) *proc.Cmd {
	return proc.Command(ctx, name, args...)
}
