package disk

import (
	"strings"
	"sync"
)

// Rule makes some calls fail.
type Rule struct {
	Op    Op     // empty: every one
	Path  string // part of the path; empty: every one
	Skip  int    // calls that match and still go well, before the first that fails
	Count int    // calls that fail; 0: all further ones
	Err   error
}

func (r Rule) matches(c Call) bool {
	return (r.Op == "" || r.Op == c.Op) && strings.Contains(c.Path, r.Path)
}

// Rules is an Injector (its Check) that can change while the disk is in use. The
// zero value lets everything pass. It is safe for concurrent use.
type Rules struct {
	mu    sync.Mutex
	rules []*Rule
	calls map[Op]int
}

// Fail adds a rule. Of several that match a call the oldest decides; each counts
// the calls that it sees.
func (r *Rules) Fail(rule Rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = append(r.rules, &rule)
}

// Clear removes all rules.
func (r *Rules) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = nil
}

// Calls returns how many calls of an operation were made, failed ones included.
func (r *Rules) Calls(op Op) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[op]
}

// Check is the Injector.
func (r *Rules) Check(c Call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = make(map[Op]int)
	}
	r.calls[c.Op]++
	for i, rule := range r.rules {
		if !rule.matches(c) {
			continue
		}
		if rule.Skip > 0 {
			rule.Skip--
			continue
		}
		if rule.Count > 0 {
			if rule.Count--; rule.Count == 0 {
				r.rules = append(r.rules[:i:i], r.rules[i+1:]...)
			}
		}
		return rule.Err
	}
	return nil
}
