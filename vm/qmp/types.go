package qmp

import "fmt"

// Command is one command on its way to QEMU.
type Command struct {
	Execute string `json:"execute"`
	Args    any    `json:"arguments,omitempty"`
}

// Event is something QEMU says unasked, "SHUTDOWN" for example.
type Event struct {
	Event     string         `json:"event"`
	Data      map[string]any `json:"data"`
	Timestamp struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"` // host time
}

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
