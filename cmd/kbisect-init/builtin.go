package main

import (
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"strings"
)

// builtin runs a command that init does itself. A hung guest can often still
// read and write when it cannot fork any more, and a fork of a shell costs more
// than most of these.
func (se *session) builtin(line string) exit {
	name, arg, _ := strings.Cut(line, " ")
	var err error
	switch name {
	case "@crc64":
		err = printCRC64(se.ch, arg)
	case "@sysrq":
		err = triggerSysRq(se.s.sysrq, arg)
	case "@poweroff":
		se.finish(exit{}) // the client hears of success before the machine is gone
		se.s.powerOff()
		return exit{}
	default:
		return se.fail(127, fmt.Errorf("%s: not a command of init (@crc64 PATH, @sysrq LETTER, @poweroff)", name))
	}
	if err != nil {
		return se.fail(1, err)
	}
	return exit{}
}

// printCRC64 takes the whole rest of the line as the path, spaces and all. The SSH
// connection has authenticated each packet; this is about the file they make. A
// cryptographic hash would cost 0.1 s of every run under emulation.
func printCRC64(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	_, err = fmt.Fprintf(w, "%016x\n", sum.Sum64())
	return err
}

func triggerSysRq(path, letter string) error {
	if len(letter) != 1 {
		return errors.New("@sysrq: wants one letter")
	}
	if err := os.WriteFile(path, []byte(letter), 0o200); err != nil {
		return fmt.Errorf("trigger sysrq (CONFIG_MAGIC_SYSRQ): %w", err)
	}
	return nil
}
