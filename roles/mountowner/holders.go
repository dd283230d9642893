package mountowner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Holder is a process that keeps a mount busy.
type Holder struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	Has     string `json:"has"` // what it has there: cwd, root, exe, fd or map
}

func (h Holder) String() string { return fmt.Sprintf("%s (pid %d, %s)", h.Command, h.PID, h.Has) }

// holdersMost bounds how many are named.
const holdersMost = 20

// Holders lists processes that have something open below path. It looks only
// at /proc and never at the mount, which may not answer.
func Holders(path string) []Holder {
	var found []Holder
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if has := holds(filepath.Join("/proc", p.Name()), path); has != "" {
			comm, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "comm"))
			found = append(found, Holder{PID: pid, Command: strings.TrimSpace(string(comm)), Has: has})
		}
		if len(found) == holdersMost {
			break
		}
	}
	return found
}

// holds tells what the process has below path, "" for nothing.
func holds(proc, path string) string {
	below := func(link string) bool {
		target, err := os.Readlink(link)
		return err == nil && within(target, path)
	}
	for _, what := range []string{"cwd", "root", "exe"} {
		if below(filepath.Join(proc, what)) {
			return what
		}
	}
	fds, _ := os.ReadDir(filepath.Join(proc, "fd"))
	for _, fd := range fds {
		if below(filepath.Join(proc, "fd", fd.Name())) {
			return "fd " + fd.Name()
		}
	}
	maps, _ := os.ReadFile(filepath.Join(proc, "maps"))
	for line := range bytes.Lines(maps) {
		if i := bytes.IndexByte(line, '/'); i >= 0 && within(string(bytes.TrimSpace(line[i:])), path) {
			return "map"
		}
	}
	return ""
}

func within(target, path string) bool {
	target = strings.TrimSuffix(target, " (deleted)")
	return target == path || strings.HasPrefix(target, path+"/")
}
