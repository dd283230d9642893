package posix

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Cases that behave badly on purpose. The variable is set before init turns a
// child into a runner, so the child knows them, too.
var _ = func() bool {
	extra = []Group{{"self", []Case{
		{Name: "passes", Fn: func(c *C) { c.Logf("note") }},
		{Name: "fails", Fn: func(c *C) { c.Want(unix.EPERM, unix.ENOENT, "a call") }},
		{Name: "panics", Fn: func(c *C) { panic("on purpose") }},
		{Name: "skips", Fn: func(c *C) { c.Skipf("no reason") }},
		{Name: "blocks", Fn: func(c *C) { select {} }},
		{Name: "blocks in a pipe", Fn: func(c *C) {
			c.OK(unix.Mkfifo(c.P("p"), 0o600), "mkfifo")
			unix.Open(c.P("p"), unix.O_RDONLY, 0)
		}},
		{Name: "dies", Fn: func(c *C) { os.Exit(7) }},
	}}}
	return true
}()

// TestRunnerReports drives a runner through every way in which a case can end.
func TestRunnerReports(t *testing.T) {
	needRoot(t, "needs root")
	t.Setenv("CI", "")
	env := Env{Dir: openDir(t)}.withDefaults()
	for _, x := range []struct {
		name    string
		failed  bool
		skipped bool
		text    string // in the log or the error
		gone    bool   // the runner does not survive
	}{
		{"passes", false, false, "note", false},
		{"fails", true, false, "a call: got ENOENT, want EPERM", false},
		{"panics", true, false, "on purpose", false},
		{"skips", false, true, "no reason", false},
		{"no such", true, false, "no such case", false},
		{"blocks", false, false, "not done after", true},
		{"blocks in a pipe", false, false, "not done after", true},
		{"dies", false, false, "its process died", true},
	} {
		t.Run(x.name, func(t *testing.T) {
			r, err := startRunner(env)
			if err != nil {
				t.Fatal(err)
			}
			defer r.end()
			res, err := r.do("self/"+x.name, 700*time.Millisecond)
			text := strings.Join(res.Log, "\n")
			if err != nil {
				text = err.Error()
			}
			if res.Failed != x.failed || res.Skipped != x.skipped || (err != nil) != x.gone || !strings.Contains(text, x.text) {
				t.Errorf("got failed %v, skipped %v, error %v, text %q", res.Failed, res.Skipped, err != nil, text)
			}
			if x.gone {
				select {
				case <-r.ended:
				case <-time.After(5 * time.Second):
					t.Error("its process still runs")
				}
			}
		})
	}
}

// TestScriptNotices gives the script language steps whose outcome is not what
// they want.
func TestScriptNotices(t *testing.T) {
	dir := t.TempDir()
	for i, x := range []struct{ text, want string }{
		{"mkdir d 755 = EEXIST", `want "EEXIST"`},
		{"mkdir d 755\n mkdir d 755", `got  "EEXIST"`},
		{"create f 644\n stat f mode = 0600", `got  "0644"`},
		{"create f 644\n mark f\n moved f = mc", `got  "-"`},
		{"create f 644\n mark f\n chmod f 600\n moved f = -", `got  "c"`},
		{"frobnicate f", "no operation"},
		{"create f 644\n write f abc\n read f = abd", `got  "abc"`},
		{"ls . = x", "want "},
		{"stat none = success", `got  "ENOENT"`},
		{"umask=9 mkdir d 755", "umask"},
	} {
		c := &C{Env: Env{}, name: "notice"}
		c.dir = dir + "/" + num2("c", i)
		c.peer = c.dir
		if err := os.Mkdir(c.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		c.guard(func() { c.Script(x.text) })
		if !c.mu.failed || !strings.Contains(strings.Join(c.mu.log, "\n"), x.want) {
			t.Errorf("script %q: failed %v, log %q", x.text, c.mu.failed, c.mu.log)
		}
	}
}

// features is what the text of B7, B8 and B9 promises. A promise added to the
// contract is added here first.
var features = map[string][]string{
	"B7": {"lookup", "create", "mkdir", "mknod fifo", "mknod socket", "mknod device nodes", "symlink", "hard link", "rename",
		"rename NOREPLACE", "rename EXCHANGE", "unlink-while-open across nodes", "truncate", "sparse files", "fallocate",
		"fallocate punch hole", "fallocate zero range", "SEEK_HOLE and SEEK_DATA", "copy_file_range", "O_APPEND atomic across nodes",
		"O_EXCL with one winner", "O_TMPFILE", "O_DIRECT", "shared mmap on one node", "xattrs user", "xattrs security", "xattrs trusted",
		"ns timestamps", "set-id clearing", "setgid inheritance", "umask", "255-byte names of any bytes",
		"directories of 1,000,000 entries", "statfs", "atime changes only by utimensat", "POSIX ACLs are EOPNOTSUPP until built",
		"honest errno, nothing succeeds without effect"},
	"B8": {"flock holds across nodes", "fcntl holds across nodes", "locks block", "locks can be interrupted", "locks end with their owner",
		"a lock never succeeds on one node only"},
	"B9": {"names are bytes", "link targets are bytes", "xattrs are bytes"},
}

// TestClauses checks that each feature has cases and each named case exists.
func TestClauses(t *testing.T) {
	for _, p := range CheckClauses() {
		t.Error(p)
	}
	mapped := map[string]bool{}
	for _, cl := range Clauses {
		mapped[cl.ID+" "+cl.Feature] = true
	}
	for id, list := range features {
		for _, f := range list {
			if !mapped[id+" "+f] {
				t.Errorf("%s %s has no row in Clauses", id, f)
			}
			delete(mapped, id+" "+f)
		}
	}
	for row := range mapped {
		t.Errorf("%s is in Clauses and not among the features", row)
	}
}

// TestNamesAreUnique: a case is found by its group and name, and neither may
// hold a slash, which separates them.
func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	cases := 0
	for _, g := range Suite {
		for _, cs := range g.Cases {
			name := g.Name + "/" + cs.Name
			if seen[name] || strings.Contains(g.Name, "/") || strings.Contains(cs.Name, "/") {
				t.Errorf("%q is there twice or has a slash too many", name)
			}
			if cs.Fn == nil || cs.Name == "" {
				t.Errorf("%q is empty", name)
			}
			seen[name] = true
			cases++
		}
	}
	if cases < 800 {
		t.Errorf("only %d cases", cases)
	}
	t.Logf("%d cases", cases)
}

// TestScriptsParse parses nothing that runs; it finds a slip without root.
func TestScriptsParse(t *testing.T) {
	for _, text := range []string{newNode, newNodeOwner, newNodeTimes, xattrLife, modeAndUmask} {
		if _, err := parseScript(text); err != nil {
			t.Error(err)
		}
	}
	l, err := parseLine(`1001:2:3,4 umask=027 h=open "a b" O_RDWR|O_CREAT 640 = EPERM|EACCES`)
	if err != nil || l.cred.UID != 1001 || l.cred.GID != 2 || len(l.cred.Groups) != 2 || l.cred.Umask != 0o27 ||
		l.handle != "h" || l.op != "open" || len(l.args) != 3 || l.args[0] != "a b" || l.want[0] != "EPERM|EACCES" {
		t.Errorf("got %+v, %v", l, err)
	}
}
