package kbuild

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// ntGNUBuildID is the type of the note that holds the linker's hash of the file.
const ntGNUBuildID = 3

// Identity returns the SHA-256, in hexadecimal, of what an ELF vmlinux puts into
// memory: entry point and loadable segments with their addresses. The build ID,
// symbols, debug information and section headers do not count, so equal
// identity means that the same kernel boots, whatever it was built from.
func Identity(vmlinux string) (string, error) {
	f, err := os.Open(vmlinux)
	if err != nil {
		return "", fmt.Errorf("identify kernel: %w", err)
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		return "", fmt.Errorf("identify kernel %s: %w", vmlinux, err)
	}
	ids := buildIDs(e)
	h := sha256.New()
	fmt.Fprintf(h, "kbisect identity 1 %v %#x\n", e.Machine, e.Entry)
	loads := 0
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		loads++
		fmt.Fprintf(h, "%v %#x %#x %d %d\n", p.Flags, p.Vaddr, p.Paddr, p.Filesz, p.Memsz)
		if err := hashSegment(h, f, p, ids); err != nil {
			return "", fmt.Errorf("identify kernel %s: %w", vmlinux, err)
		}
	}
	if loads == 0 {
		return "", fmt.Errorf("identify kernel %s: it has no loadable segment", vmlinux)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// span is a part of the file: from off, n bytes.
type span struct{ off, n int64 }

// hashSegment hashes the bytes of p, with those of skip as zeros.
func hashSegment(h io.Writer, f io.ReaderAt, p *elf.Prog, skip []span) error {
	pos, end := int64(p.Off), int64(p.Off+p.Filesz)
	for _, s := range skip {
		if s.off < pos || s.off+s.n > end {
			continue
		}
		if err := copySection(h, f, pos, s.off-pos); err != nil {
			return err
		}
		if _, err := h.Write(make([]byte, s.n)); err != nil {
			return err
		}
		pos = s.off + s.n
	}
	return copySection(h, f, pos, end-pos)
}

// copySection copies n bytes at off; fewer are an error.
func copySection(w io.Writer, f io.ReaderAt, off, n int64) error {
	got, err := io.Copy(w, io.NewSectionReader(f, off, n))
	if err == nil && got != n {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// buildIDs returns where the build IDs stand in the file, in order. What does
// not parse as notes is left as it is, and is hashed.
func buildIDs(e *elf.File) []span {
	var spans []span
	for _, s := range e.Sections {
		if s.Type != elf.SHT_NOTE || s.Flags&elf.SHF_ALLOC == 0 || s.Size > 1<<20 {
			continue
		}
		data, err := s.Data()
		if err != nil {
			continue
		}
		spans = append(spans, noteIDs(data, int64(s.Offset), e.ByteOrder)...)
	}
	return spans
}

// noteIDs finds the descriptors of GNU build ID notes in data, which stands at
// base in the file.
func noteIDs(data []byte, base int64, order binary.ByteOrder) []span {
	var spans []span
	const head = 12 // name size, descriptor size, type
	for pos := 0; pos+head <= len(data); {
		name := int(order.Uint32(data[pos:]))
		desc := int(order.Uint32(data[pos+4:]))
		kind := order.Uint32(data[pos+8:])
		nameAt := pos + head
		descAt := nameAt + (name+3)&^3
		next := descAt + (desc+3)&^3
		if name > len(data) || desc > len(data) || descAt+desc > len(data) { // the last one may lack its padding
			break
		}
		if kind == ntGNUBuildID && bytes.Equal(data[nameAt:nameAt+name], []byte("GNU\x00")) {
			spans = append(spans, span{base + int64(descAt), int64(desc)})
		}
		pos = next
	}
	return spans
}
