package mounts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Mount is a line of a mount table (proc_pid_mountinfo(5)).
type Mount struct {
	ID, Parent int
	// Device is the filesystem's MAJOR:MINOR.
	Device string
	// Root is the folder of the filesystem that is mounted; one that was removed
	// ends in "//deleted".
	Root string
	// Point is where it is mounted, as the process sees it.
	Point string
	// ReadOnly says that this mount is, whatever the filesystem allows.
	ReadOnly bool
	// Shared says that mounts below it propagate to its peers.
	Shared bool
	Type   string
	// Source is what its maker called it.
	Source string
}

// lineBytesMost bounds a line: two paths, escaped, and options.
const lineBytesMost = 64 << 10

// Parse reads a mount table.
func Parse(r io.Reader) ([]Mount, error) {
	var table []Mount
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), lineBytesMost)
	for lines.Scan() {
		m, err := parseLine(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("mount table, line %d: %w", len(table)+1, err)
		}
		table = append(table, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	return table, nil
}

var errLine = errors.New("not the format that proc_pid_mountinfo(5) describes")

func parseLine(line string) (Mount, error) {
	before, after, ok := strings.Cut(line, " - ")
	fields := strings.Split(before, " ")
	kind := strings.Split(after, " ")
	if !ok || len(fields) < 6 || len(kind) < 2 {
		return Mount{}, errLine
	}
	id, err := strconv.Atoi(fields[0])
	if err != nil {
		return Mount{}, errLine
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Mount{}, errLine
	}
	m := Mount{ID: id, Parent: parent, Device: fields[2], Root: unescape(fields[3]), Point: unescape(fields[4]), Type: kind[0], Source: unescape(kind[1])}
	for o := range strings.SplitSeq(fields[5], ",") {
		m.ReadOnly = m.ReadOnly || o == "ro"
	}
	for _, o := range fields[6:] {
		m.Shared = m.Shared || strings.HasPrefix(o, "shared:")
	}
	return m, nil
}

// unescape undoes the kernel's octal escapes of space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Own returns the mount table of this process.
func Own() ([]Mount, error) { return tableOf("/proc/self/mountinfo") }

func tableOf(path string) ([]Mount, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f)
}

// At returns the mount that is seen at a path, the last one if several are stacked
// there.
func At(table []Mount, path string) (Mount, bool) {
	for i := len(table) - 1; i >= 0; i-- {
		if table[i].Point == path {
			return table[i], true
		}
	}
	return Mount{}, false
}

// Containing returns the mount in which a clean absolute path lies.
func Containing(table []Mount, path string) (Mount, bool) {
	for {
		if m, ok := At(table, path); ok {
			return m, true
		}
		if path == "/" || path == "" {
			return Mount{}, false
		}
		path = path[:max(1, strings.LastIndexByte(path, '/'))]
	}
}
