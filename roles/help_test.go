package roles

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/roles/boot"
)

var update = flag.Bool("update", false, "write the golden files anew")

// walk visits every command with the words that lead to it.
func walk(commands []*cli.Command, words []string, visit func(words []string, c *cli.Command)) {
	for _, c := range commands {
		path := append(append([]string(nil), words...), c.Name)
		visit(path, c)
		walk(c.Commands, path, visit)
	}
}

// TestHelp holds the help of every command to a golden file.
func TestHelp(t *testing.T) {
	helps := map[string][]string{"help": nil}
	walk(Commands(), nil, func(words []string, _ *cli.Command) { helps[strings.Join(words, "-")] = words })
	for name, words := range helps {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			args := append(append([]string{boot.Name}, words...), "--help")
			if code := Main(t.Context(), args, &out, &errOut); code != 0 || errOut.Len() != 0 {
				t.Fatalf("exit code %d, standard error %q", code, errOut.String())
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, out.Bytes()) {
				t.Errorf("%s differs:\n%s", golden, out.Bytes())
			}
		})
	}
	found, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(helps) {
		t.Errorf("%d golden files for %d commands", len(found), len(helps))
	}
}

// TestFlagsAreExplained asks of each flag a usage, an environment variable, and
// a default that is seen.
func TestFlagsAreExplained(t *testing.T) {
	walk(Commands(), nil, func(words []string, c *cli.Command) {
		if c.Usage == "" {
			t.Errorf("%v has no usage", words)
		}
		for _, f := range c.Flags {
			name := f.Names()[0]
			text := f.String()
			env := "TAK_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
			if !strings.Contains(text, "[$"+env+"]") {
				t.Errorf("%v --%s does not name %s: %s", words, name, env, text)
			}
			if d, ok := f.(cli.DocGenerationFlag); !ok || d.GetUsage() == "" {
				t.Errorf("%v --%s has no usage", words, name)
			}
		}
	})
}

// TestShim shows that only fusermount3 is answered for.
func TestShim(t *testing.T) {
	for _, args := range [][]string{nil, {}, {"tak-replicated"}, {"/usr/bin/fusermount"}} {
		if _, ok := Shim(args); ok {
			t.Errorf("%q was taken for fusermount3", args)
		}
	}
}
