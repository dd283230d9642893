package kernel

import (
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestSuspectPages goes through what makes the kernel ignore an answer to GETATTR.
func TestSuspectPages(t *testing.T) {
	const me, other = 1, 2
	file := func(size uint64) *fsop.Attr { return &fsop.Attr{Ino: 7, Mode: fsop.TypeFile, Size: size} }
	for name, c := range map[string]struct {
		before      func(p *pages)
		lease       uint64
		writing     bool
		drop, grown bool
	}{
		"nothing happened":                     {before: func(*pages) {}},
		"I was told":                           {before: func(p *pages) { p.tell(file(1), me, false) }},
		"I wrote":                              {before: func(p *pages) { p.wrote(7, me, 10) }},
		"another was told":                     {before: func(p *pages) { p.tell(file(10), other, false) }, drop: true},
		"another was told before I was":        {before: func(p *pages) { p.tell(file(10), other, false); p.tell(file(10), me, false) }, drop: true},
		"another was told of a smaller file":   {before: func(p *pages) { p.tell(file(9), other, false) }, drop: true, grown: true},
		"another wrote":                        {before: func(p *pages) { p.wrote(7, other, 10) }, drop: true},
		"another wrote before the new end":     {before: func(p *pages) { p.wrote(7, other, 4) }, drop: true, grown: true},
		"another wrote through a mapping":      {before: func(p *pages) { p.wrote(7, other, 0) }, drop: true, grown: true},
		"another writes":                       {before: func(*pages) {}, writing: true, drop: true, grown: true},
		"another asks":                         {before: func(p *pages) { p.ask(7) }, drop: true, grown: true},
		"another asked":                        {before: func(p *pages) { p.ask(7)() }},
		"taken over":                           {before: func(p *pages) { p.adopted = memoNow() }, drop: true, grown: true},
		"who is of another namespace was told": {before: func(p *pages) { p.tell(file(10), 0, false) }, drop: true},
		"dropped under this lease":             {before: func(p *pages) { p.wrote(7, other, 4); p.dropped(file(10), 5) }, lease: 5},
		"dropped under another lease":          {before: func(p *pages) { p.wrote(7, other, 4); p.dropped(file(10), 4) }, lease: 5, drop: true},
		"dropped without a lease":              {before: func(p *pages) { p.wrote(7, other, 4); p.dropped(file(10), 0) }, drop: true},
		"the slot had another inode meanwhile": {before: func(p *pages) { p.dropped(file(10), 5); p.slot(7).of(8); p.wrote(7, other, 10) }, lease: 5, drop: true},
		"truncated by another, in this kernel": {before: func(p *pages) { p.wrote(7, other, 20); p.tell(file(5), other, true) }, drop: true, grown: true},
		"a raced answer may have been ignored": {before: func(p *pages) { p.wrote(7, other, 4); p.tell(file(10), me, false) }, drop: true, grown: true},
		"a raced answer showed a smaller file": {before: func(p *pages) { p.wrote(7, other, 20); p.tell(file(5), me, false) }, drop: true, grown: true},
		"dropped when it was smaller":          {before: func(p *pages) { p.wrote(7, other, 20); p.dropped(file(5), 0) }, drop: true, grown: true},
		"the end was stored":                   {before: func(p *pages) { p.wrote(7, other, 4); p.dropped(file(10), 0) }, drop: true},
	} {
		t.Run(name, func(t *testing.T) {
			var p pages
			c.before(&p)
			defer p.ask(7)()
			if drop, grown := p.suspect(file(10), me, c.lease, c.writing); drop != c.drop || grown != c.grown {
				t.Fatalf("drop %v, grown %v", drop, grown)
			}
		})
	}
}
