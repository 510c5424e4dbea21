package gitx

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPack compares what is computed here with what git makes.
func TestPack(t *testing.T) {
	ctx := t.Context()
	for _, format := range []string{"sha1", "sha256"} {
		repo, err := InitBare(ctx, filepath.Join(t.TempDir(), "r.git"), format)
		if err != nil {
			t.Fatal(err)
		}
		blob, err := repo.output(ctx, Command{Args: []string{"hash-object", "-w", "--stdin"}, Stdin: strings.NewReader("x\n")})
		if err != nil {
			t.Fatal(err)
		}
		p := NewPack(blob)
		if id := p.Add("blob", []byte("x\n")); id != blob {
			t.Errorf("%s: blob %s, want %s", format, id, blob)
		}
		long := strings.Repeat("some text\n", 100_000) // a size of several bytes
		big := p.Add("blob", []byte(long))
		sub, err := EncodeTree([]TreeEntry{{"100644", "f", blob}})
		if err != nil {
			t.Fatal(err)
		}
		entries := []TreeEntry{{TreeFolder, "a", p.Add("tree", sub)}, {"100755", "a.c", blob}, {"120000", "a-link", blob}, {"100644", "big", big}}
		slices.SortFunc(entries, CompareTreeNames)
		root, err := EncodeTree(entries)
		if err != nil {
			t.Fatal(err)
		}
		tree := p.Add("tree", root)
		first := p.AddCommit(tree, "first ü\n")
		second := p.AddCommit(tree, "second\n", first)
		for range 2 { // the second is empty
			if err := repo.WritePack(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := repo.CommitTree(ctx, tree, "second\n", first); err != nil || want != second {
			t.Errorf("%s: commit %s, want %s, %v", format, second, want, err)
		}
		if err := repo.Run(ctx, "fsck", "--strict", "--full", second); err != nil {
			t.Error(err)
		}
		if got, err := repo.ReadFile(ctx, second, "big", 1<<30); err != nil || got != long {
			t.Errorf("%s: read %d bytes, %v", format, len(got), err)
		}
	}
	for _, e := range []TreeEntry{{"100644", "a/b", strings.Repeat("0", 40)}, {"100644", "", ""}, {"100644", "x", "zz"}} {
		if _, err := EncodeTree([]TreeEntry{e}); err == nil {
			t.Errorf("took %+v", e)
		}
	}
}
