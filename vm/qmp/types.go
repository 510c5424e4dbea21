package qmp

import (
	"fmt"

	"github.com/digitalocean/go-qemu/qmp"
)

// The protocol's messages and the monitor's methods are go-qemu's, so that
// whatever is written against its Monitor works with a Client.
type (
	// Command is one command on its way to QEMU.
	Command = qmp.Command
	// Event is something QEMU says unasked, "SHUTDOWN" for example.
	Event = qmp.Event
)

var _ qmp.Monitor = (*Client)(nil)

// Version is QEMU's version, as its greeting states it.
type Version struct {
	Package string `json:"package"`
	QEMU    struct {
		Major int `json:"major"`
		Micro int `json:"micro"`
		Minor int `json:"minor"`
	} `json:"qemu"`
}

func (v Version) String() string {
	return fmt.Sprintf("%d.%d.%d", v.QEMU.Major, v.QEMU.Minor, v.QEMU.Micro)
}
