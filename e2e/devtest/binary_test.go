package devtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// source writes a program that prints a word.
func source(t *testing.T, root, word string) {
	t.Helper()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/tak-replicated\n\ngo 1.26\n",
		"main.go": "package main\n\nfunc main() { print(\"" + word + "\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func built(t *testing.T, cache, root, word string) string {
	t.Helper()
	bin, err := cachedBuild(cache, root)
	if err != nil {
		t.Fatal(err)
	}
	says(t, bin, word)
	return bin
}

func says(t *testing.T, bin, word string) {
	t.Helper()
	if out, err := exec.Command(bin).CombinedOutput(); err != nil || string(out) != word {
		t.Fatalf("%s says %q, %v, not %s", bin, out, err, word)
	}
}

// TestCachedBuild: the same source gives the same file, another one another, and
// the first stays as it is while it is in use.
func TestCachedBuild(t *testing.T) {
	cache, root := t.TempDir(), t.TempDir()
	source(t, root, "one")
	one := built(t, cache, root, "one")
	before, err := os.Stat(one)
	if err != nil {
		t.Fatal(err)
	}
	if again := built(t, cache, root, "one"); again != one {
		t.Errorf("the same source gave %s and %s", one, again)
	}
	source(t, root, "two")
	two := built(t, cache, root, "two")
	if two == one {
		t.Error("another source gave the same file")
	}
	says(t, one, "one")
	after, err := os.Stat(one)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the first program was replaced: %v", err)
	}
	old := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(filepath.Dir(one), old, old); err != nil {
		t.Fatal(err)
	}
	built(t, cache, root, "two")
	if _, err := os.Stat(one); !os.IsNotExist(err) {
		t.Errorf("a program that nobody has used for long is still there: %v", err)
	}
}

func TestCachedBuildSaysWhatIsWrong(t *testing.T) {
	root := t.TempDir()
	source(t, root, "\" + missing + \"")
	if _, err := cachedBuild(t.TempDir(), root); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a source that does not compile: %v", err)
	}
}
