package sim

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// labVariable is set where the tests run as a laboratory, and bugVariable names
// the planted bug that is to be in it.
const (
	labVariable = "SIM_LABORATORY"
	bugVariable = "SIM_BUG"

	// lateVariable is set while goroutines are to be late now and then.
	lateVariable = "SIM_LATE"
)

var inLab = os.Getenv(labVariable) != ""

// edit replaces a text of a file; it has to be there exactly once. Files are
// those of the module, or of the Go distribution if they begin with $GOROOT.
// BUG stands for a condition: whether the edit's bug is planted.
type edit struct{ file, old, new string }

// schedule makes what goroutines of a bubble do the same from run to run, as far
// as chance and time have a part in it: the order of select's cases, of timers at
// the same moment and of maps, and where a goroutine is interrupted. With one
// processor and without collection of garbage nothing else decides.
var schedule = []edit{
	{"$GOROOT/src/runtime/rand.go", "func rand32() uint32 {\n", "func rand32() uint32 {\n\tif getg().bubble != nil {\n\t\treturn 0x9e3779b9\n\t}\n"},
	{"$GOROOT/src/runtime/rand.go", "func maps_rand() uint64 {\n", "func maps_rand() uint64 {\n\tif getg().bubble != nil {\n\t\treturn 0x9e3779b97f4a7c15\n\t}\n"},
	{
		"$GOROOT/src/runtime/synctest.go", "\tactive  int // other sources of activity\n}",
		"\tactive  int // other sources of activity\n\n\tselects, ticks uint64\n}\n\n// random is the next of a row of numbers that is the same in every bubble.\n//\n//go:nosplit\nfunc bubbleRandom(row *uint64) uint32 {\n\t*row += 0x9e3779b97f4a7c15\n\tz := *row\n\tz = (z ^ z>>30) * 0xbf58476d1ce4e5b9\n\tz = (z ^ z>>27) * 0x94d049bb133111eb\n\treturn uint32(z >> 32)\n}\n",
	},
	{"$GOROOT/src/runtime/time.go", "t.rand = cheaprand()", "t.rand = bubbleRandom(&getg().bubble.ticks)"},
	{
		"$GOROOT/src/runtime/select.go", "j := cheaprandn(uint32(norder + 1))",
		"j := cheaprandn(uint32(norder + 1))\n\t\tif gp.bubble != nil {\n\t\t\tj = bubbleRandom(&gp.bubble.selects) % uint32(norder+1)\n\t\t}",
	},
	{"$GOROOT/src/runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000", "const forcePreemptNS = 1000 * 1000 * 1000 * 1000"},
	{"$GOROOT/src/runtime/proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if pp.schedtick < 0 {"},
	{"$GOROOT/src/runtime/alg.go", "key[i] = bootstrapRand()", "key[i] = uint64(i)*0x9e3779b97f4a7c15 + 1"},
	{"$GOROOT/src/runtime/alg.go", "hashkey[i] = uintptr(bootstrapRand())", "hashkey[i] = uintptr(i)*977 + 1"},
}

// interruptions are places where a goroutine is late now and then: nothing interrupts
// any in a laboratory. No lock is held there.
var interruptions = []edit{
	{"fusefs/coord/query.go", "\trep, failure := c.read(s, r.Op, begin)\n", "\trep, failure := c.read(s, r.Op, begin)\n\tinterrupted()\n"},
}

// interruptedSource is a file that each package gets that is interrupted. Chance
// depends on nothing but the time, so that a world is always the same. Only worlds
// with rare windows have them.
func interruptedSource(pkg string) string {
	return "package " + pkg + `

import (
	"os"
	"time"
)

func interrupted() {
	if os.Getenv("` + lateVariable + `") == "" {
		return
	}
	now := uint64(time.Now().UnixNano()) * 0x9e3779b97f4a7c15
	if now ^= now >> 32; now%4 == 0 {
		time.Sleep(time.Duration(2+now>>8%30) * time.Millisecond)
	}
}
`
}

// texts are files as edits have made them, by path.
type texts map[string]string

func (x texts) apply(t testing.TB, e edit, bug string) {
	path := path(t, e.file)
	if x[path] == "" {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		x[path] = string(text)
	}
	if n := strings.Count(x[path], e.old); n != 1 {
		t.Fatalf("%s has this %d times: %s", e.file, n, e.old)
	}
	x[path] = strings.Replace(x[path], e.old, strings.ReplaceAll(e.new, "BUG", condition(bug)), 1)
	if bug != "" {
		dir := filepath.Dir(path)
		x[filepath.Join(dir, "zz_planted.go")] = plantedSource(filepath.Base(dir))
	}
}

// condition is the source text that is true where a bug is planted.
func condition(bug string) string { return `(plantedBug == "` + bug + `")` }

// plantedSource is a file that each package with a planted bug gets.
func plantedSource(pkg string) string {
	return "package " + pkg + "\n\nimport \"os\"\n\nvar plantedBug = os.Getenv(\"" + bugVariable + "\")\n"
}

var goroot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out)), err
})

func path(t testing.TB, file string) string {
	if rest, ok := strings.CutPrefix(file, "$GOROOT"); ok {
		root, err := goroot()
		if err != nil {
			t.Fatal(err)
		}
		return root + rest
	}
	path, err := filepath.Abs(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// write puts the files into a folder and tells the go command of them.
func (x texts) write(dir string) (overlay string, err error) {
	replace := map[string]string{}
	for path, text := range x {
		changed := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = changed
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, raw, 0o600)
}

// laboratory is the program of these tests with all bugs in it, each asleep, and
// with a schedule that depends on nothing but the seed.
var laboratory struct {
	once    sync.Once
	program string
}

// lab builds the laboratory once. The first time takes minutes, since all of the
// Go distribution is built; then the go command's cache has most of it.
func lab(t testing.TB) string {
	laboratory.once.Do(func() {
		program := *programFlag
		if program == "" {
			program = filepath.Join(scratch, "sim.test")
		} else if _, err := os.Stat(program); err == nil {
			laboratory.program = program
			return
		}
		x := texts{}
		for _, e := range schedule {
			x.apply(t, e, "")
		}
		for _, e := range interruptions {
			x.apply(t, e, "")
			dir := filepath.Dir(path(t, e.file))
			x[filepath.Join(dir, "zz_interrupted.go")] = interruptedSource(filepath.Base(dir))
		}
		for _, b := range bugs {
			for _, e := range b.edits {
				x.apply(t, e, b.name)
			}
		}
		overlay, err := x.write(scratch)
		if err != nil {
			t.Fatal(err)
		}
		build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", program, ".")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		laboratory.program = program
	})
	if laboratory.program == "" {
		t.Fatal("the laboratory could not be built")
	}
	return laboratory.program
}

// scratch is the tests' folder.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sim")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }() // nothing depends on it
		scratch = dir
		return m.Run()
	}())
}
