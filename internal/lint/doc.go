// Package lint has no code: its tests hold the module to its own rules
// (layering, formatting, static checks, documented names, the fixed top level),
// so that `go test ./...` is the only command that anybody has to know.
package lint
