package gitx

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// Pack collects new objects, whose ids it computes, so that one git can write
// hundreds of them (WritePack) where one git an object would take seconds. It is
// for small objects and for one goroutine.
type Pack struct {
	newHash func() hash.Hash
	seen    map[string]bool
	body    bytes.Buffer
	z       *zlib.Writer
}

// NewPack returns an empty pack for a repository whose ids look like id.
func NewPack(id string) *Pack {
	p := &Pack{newHash: sha1.New, seen: map[string]bool{}}
	if len(id) == 2*sha256.Size {
		p.newHash = sha256.New
	}
	p.z, _ = zlib.NewWriterLevel(&p.body, zlib.BestSpeed) // the level is valid
	return p
}

// ID returns the id of an object of a kind ("tree", "commit", "blob").
func (p *Pack) ID(kind string, data []byte) string {
	h := p.newHash()
	fmt.Fprintf(h, "%s %d\x00", kind, len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// Add takes an object and returns its id.
func (p *Pack) Add(kind string, data []byte) string {
	id := p.ID(kind, data)
	if p.seen[id] {
		return id
	}
	p.seen[id] = true
	// The kind and the size, 4 and then 7 bits in a byte, lowest first.
	number := map[string]byte{"commit": 1, "tree": 2, "blob": 3}[kind]
	size := len(data)
	c := number<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.body.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	p.body.WriteByte(c)
	p.z.Reset(&p.body)
	_, _ = p.z.Write(data) // into memory
	_ = p.z.Close()
	return id
}

// AddCommit takes a commit as CommitTree would make it and returns its id.
func (p *Pack) AddCommit(tree, message string, parents ...string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, id := range parents {
		fmt.Fprintf(&b, "parent %s\n", id)
	}
	who := fmt.Sprintf("%s <%s> %s", CommitName, CommitEmail, CommitDate)
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s", who, who, message)
	return p.Add("commit", b.Bytes())
}

// TreeEntry is one name in a tree.
type TreeEntry struct {
	Mode string // as git writes it: "100644", "040000" for a folder
	Name string
	ID   string
}

// TreeFolder is the mode of a folder in a tree.
const TreeFolder = "040000"

// EncodeTree returns the content of a tree object. The entries are in the order
// of CompareTreeNames.
func EncodeTree(entries []TreeEntry) ([]byte, error) {
	var b bytes.Buffer
	for _, e := range entries {
		id, err := hex.DecodeString(e.ID)
		if err != nil || e.Name == "" || strings.ContainsAny(e.Name, "/\x00") {
			return nil, fmt.Errorf("make tree: bad entry %q %q", e.Name, e.ID)
		}
		fmt.Fprintf(&b, "%s %s\x00", strings.TrimLeft(e.Mode, "0"), e.Name)
		b.Write(id)
	}
	return b.Bytes(), nil
}

// CompareTreeNames orders the entries of a tree: by name, a folder as if a slash
// came after it.
func CompareTreeNames(a, b TreeEntry) int {
	return strings.Compare(a.key(), b.key())
}

func (e TreeEntry) key() string {
	if e.Mode == TreeFolder {
		return e.Name + "/"
	}
	return e.Name
}

// Len is the size of what was collected, in bytes.
func (p *Pack) Len() int { return p.body.Len() }

// WritePack writes the objects of a pack into the repository, as single objects,
// and empties the pack.
func (r Repo) WritePack(ctx context.Context, p *Pack) error {
	if len(p.seen) == 0 {
		return nil
	}
	head := append([]byte("PACK"), 0, 0, 0, 2)
	head = binary.BigEndian.AppendUint32(head, uint32(len(p.seen)))
	data := append(head, p.body.Bytes()...)
	h := p.newHash()
	h.Write(data)
	data = h.Sum(data)
	p.body.Reset()
	clear(p.seen)
	return r.Do(ctx, Command{Args: []string{"unpack-objects", "-q"}, Stdin: bytes.NewReader(data)})
}
