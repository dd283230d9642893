package dev

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
)

var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// typed are a document's blocks of commands that are no examples.
func typed(t *testing.T, doc string) (blocks []string) {
	t.Helper()
	file := "../../docs/" + doc
	if doc == "README.md" {
		file = "../../" + doc
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		if !strings.HasPrefix(m[1], "# example") {
			blocks = append(blocks, m[1])
		}
	}
	return blocks
}

// desk is a folder with programs of the names that documents use, and the environment in which they are found.
func desk(t *testing.T, env ...string) []string {
	t.Helper()
	bin := t.TempDir()
	for name, text := range map[string]string{
		"tak-replicated": `exec "$PROGRAM" "$@"`,
		"go":             `[ "$1 $2" = "run ." ] || exit 99; shift 2; exec "$PROGRAM" "$@"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return append(append(os.Environ(), "PROGRAM="+devtest.Binary(t), "PATH="+bin+":"+os.Getenv("PATH")), env...)
}

// typedWithin bounds one block.
const typedWithin = 2 * time.Minute

func types(t *testing.T, env []string, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), typedWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Env, cmd.WaitDelay = env, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, text, out)
	}
}

// TestGuides types what the documents say that need no cluster, on a dev with two mounts: they stand for two nodes.
func TestGuides(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Replicas: 3, Mounts: 2})
	env := desk(t, "DIR="+d.Dir, "MOUNT="+d.Mounts[0], "MOUNT2="+d.Mounts[1])
	for doc, least := range map[string]int{"user-guide.md": 3, "troubleshooting.md": 2, "replication.md": 1} {
		blocks := typed(t, doc)
		if len(blocks) < least {
			t.Errorf("%s has %d blocks", doc, len(blocks))
		}
		for _, b := range blocks {
			types(t, env, b)
		}
	}
}

// dev begins a line that starts one.
const dev = "go run . dev"

// TestReadme types what README.md says, line by line; a dev runs until the next one.
func TestReadme(t *testing.T) {
	devtest.NeedFUSE(t)
	env := desk(t, "TAK_DIR="+filepath.Join(t.TempDir(), "dev"), "TAK_RESERVE_BYTES=16777216")
	var lines []string
	for _, b := range typed(t, "README.md") {
		for line := range strings.Lines(b) {
			line, _, _ = strings.Cut(line, "   #")
			lines = append(lines, strings.ReplaceAll(strings.TrimSpace(line), "ROLE", "worker"))
		}
	}
	devs := 0
	for len(lines) > 0 {
		line := lines[0]
		rest := slices.IndexFunc(lines[1:], func(l string) bool { return strings.HasPrefix(l, dev) }) + 1
		if rest == 0 {
			rest = len(lines)
		}
		if !strings.HasPrefix(line, dev) {
			t.Fatalf("%q comes before a dev", line)
		}
		runs(t, env, line, func() {
			for _, l := range lines[1:rest] {
				types(t, env, l)
			}
		})
		devs, lines = devs+1, lines[rest:]
	}
	if devs != 2 {
		t.Errorf("the README starts a dev %d times", devs)
	}
}

// runs starts a dev, waits until it is ready, and ends it after use as Ctrl-C does.
func runs(t *testing.T, env []string, line string, use func()) {
	t.Helper()
	cmd := exec.Command("bash", "-c", "exec "+line)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(typedWithin, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	ready := false
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, said.String())
		}
	}()
	for s := bufio.NewScanner(out); !ready && s.Scan(); {
		ready = strings.HasPrefix(s.Text(), "ready: ")
	}
	if !ready {
		t.Fatalf("%s was not ready\n%s", line, said.String())
	}
	use()
}
