//go:build kbisect_release

package guestbin

import "embed"

//go:embed embed/kbisect-init embed/kbisect-agent
var embedded embed.FS

// readEmbedded returns a program that this binary carries.
func readEmbedded(name string) (content []byte, ok bool, err error) {
	content, err = embedded.ReadFile("embed/" + name)
	return content, err == nil, err
}
