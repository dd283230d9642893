package posix

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A script is a case written as one step a line:
//
//	[WHO] [umask=MODE] [HANDLE=]OP ARG… [= RESULT…]
//
// WHO is uid:gid or uid:gid:group,group…; without it the step is root's. RESULT
// is the errno wanted (several joined by "|"), or what the operation reports;
// without one the step has to succeed. A word in double quotes is a Go string.
// In paths {n255} stands for a name of 255 bytes, and {abs} for the case's
// directory as an absolute path. "#" starts a comment line. The operations are
// the keys of ops.
//
// The script runs once with every step on the first side, and, with a second
// mount, once more with steps alternating between the sides.

// line is one parsed step.
type line struct {
	n      int
	text   string
	cred   *Cred
	handle string
	op     string
	args   []string
	want   []string
}

// script is one run of a text.
type script struct {
	c       *C
	sides   [2]string // directory of this run on each side
	side    string    // directory of the current step
	handles map[string]int
	opened  map[string]string // side on which a handle was opened
	marks   map[string]unix.Stat_t
	bind    string // handle that the current step's open names
}

// Script makes a case of a text.
func Script(name, text string, needs ...Cap) Case {
	return Case{Name: name, Needs: needs, Fn: func(c *C) { c.Script(text) }}
}

// Each makes a case for every word of a list; $K in the text is the word.
func Each(name, words, text string, needs ...Cap) []Case {
	var cases []Case
	for _, w := range strings.Fields(words) {
		cases = append(cases, Script(name+" "+w, strings.ReplaceAll(text, "$K", w), needs...))
	}
	return cases
}

// Kinds are all kinds of nodes that the op make knows.
const (
	Kinds      = "file dir fifo sock chr blk symlink"
	NonDirs    = "file fifo sock chr blk symlink"
	NonLinks   = "file dir fifo sock chr blk"
	PlainKinds = "file fifo sock chr blk"
)

// Join concatenates lists of cases.
func Join(lists ...[]Case) []Case {
	var all []Case
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Script runs a text in both modes.
func (c *C) Script(text string) {
	c.runScript(text, "one", c.dir, c.dir)
	if c.dir != c.peer {
		c.runScript(text, "two", c.dir, c.peer)
	}
}

func (c *C) runScript(text, mode, a, b string) {
	lines, err := parseScript(text)
	c.OK(err, "parse script")
	s := &script{c: c, handles: map[string]int{}, opened: map[string]string{}, marks: map[string]unix.Stat_t{}}
	s.sides = [2]string{a + "/" + mode, b + "/" + mode}
	c.OK(unix.Mkdir(s.sides[0], 0o755), "mkdir %s", mode)
	defer func() {
		for _, fd := range s.handles {
			unix.Close(fd)
		}
	}()
	for i, l := range lines {
		s.side = s.sides[i%2]
		if !s.step(l) {
			c.Logf("sides: %s mode, step on side %d", mode, i%2)
			panic(stop{})
		}
	}
}

// step performs one line and reports whether it went as wanted.
func (s *script) step(l line) bool {
	op, ok := ops[l.op]
	if !ok {
		s.c.Errorf("line %d: no operation %q", l.n, l.op)
		return false
	}
	var got string
	var err error
	do := func() { s.bind = l.handle; got, err = op(s, l.args) }
	if l.cred != nil {
		s.c.As(*l.cred, do)
	} else {
		do()
	}
	if err != nil {
		got = Name(err)
	}
	if matches(got, err, l.want) {
		return true
	}
	if got == "" {
		got = "success"
	}
	want := strings.Join(l.want, " ")
	if len(l.want) == 0 {
		want = "success"
	}
	s.c.record(true, fmt.Sprintf("line %d: %s\n\tgot  %s\n\twant %s", l.n, l.text, clip(got), clip(want)))
	return false
}

// matches compares a step's outcome to what the line wants.
func matches(got string, err error, want []string) bool {
	if len(want) == 0 {
		return err == nil
	}
	if got == strings.Join(want, " ") {
		return true
	}
	if len(want) == 1 {
		for _, alt := range strings.Split(want[0], "|") {
			if got == alt || alt == "success" && err == nil {
				return true
			}
		}
	}
	return false
}

var (
	tokenRE  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\S+`)
	credRE   = regexp.MustCompile(`^(\d+):(\d+)(?::([\d,]+))?$`)
	handleRE = regexp.MustCompile(`^([a-z]\w*)=(open|tmpfile)$`)
)

func parseScript(text string) ([]line, error) {
	var lines []line
	for i, raw := range strings.Split(text, "\n") {
		raw = strings.TrimSpace(raw)
		if raw == "" || raw[0] == '#' {
			continue
		}
		l, err := parseLine(raw)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", i+1, raw, err)
		}
		l.n, l.text = i+1, raw
		lines = append(lines, l)
	}
	return lines, nil
}

func parseLine(raw string) (line, error) {
	var l line
	toks := tokenRE.FindAllString(raw, -1)
	for i, tok := range toks {
		if tok == "=" {
			for _, w := range toks[i+1:] {
				u, err := unquote(w)
				if err != nil {
					return l, err
				}
				l.want = append(l.want, u)
			}
			if len(l.want) == 0 {
				l.want = []string{""}
			}
			toks = toks[:i]
			break
		}
	}
	umask := 0
	for len(toks) > 0 {
		if m := credRE.FindStringSubmatch(toks[0]); m != nil {
			l.cred = &Cred{UID: atoi(m[1]), GID: atoi(m[2])}
			for _, g := range strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' }) {
				l.cred.Groups = append(l.cred.Groups, atoi(g))
			}
		} else if v, ok := strings.CutPrefix(toks[0], "umask="); ok {
			m, err := strconv.ParseInt(v, 8, 32)
			if err != nil {
				return l, fmt.Errorf("umask: %w", err)
			}
			umask = int(m)
			if l.cred == nil {
				l.cred = &Cred{}
			}
		} else {
			break
		}
		toks = toks[1:]
	}
	if l.cred != nil {
		l.cred.Umask = umask
	}
	if len(toks) == 0 {
		return l, fmt.Errorf("no operation")
	}
	l.op = toks[0]
	if m := handleRE.FindStringSubmatch(l.op); m != nil {
		l.handle, l.op = m[1], m[2]
	}
	for _, a := range toks[1:] {
		u, err := unquote(a)
		if err != nil {
			return l, err
		}
		l.args = append(l.args, u)
	}
	return l, nil
}

func unquote(tok string) (string, error) {
	if strings.HasPrefix(tok, `"`) {
		return strconv.Unquote(tok)
	}
	return tok, nil
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

var longRE = regexp.MustCompile(`\{n(\d+)\}`)

// expand replaces {nN} and {abs}.
func (s *script) expand(arg string) string {
	arg = longRE.ReplaceAllStringFunc(arg, func(m string) string {
		return strings.Repeat("n", atoi(longRE.FindStringSubmatch(m)[1]))
	})
	return strings.ReplaceAll(arg, "{abs}", s.side)
}

// path makes an argument a path on the side of the current step.
func (s *script) path(arg string) string {
	arg = s.expand(arg)
	if strings.HasPrefix(arg, "/") {
		return arg
	}
	return s.side + "/" + arg
}
