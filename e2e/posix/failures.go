package posix

import (
	"errors"
	"runtime"
	"strings"
	"sync"
)

// Failures runs the cases of groups as [RunGroups] does, several at once, but
// reports instead of failing a test: for who wants to know that a filesystem
// does not pass. Each element of failed is the name "group/case" of a case that
// failed, died or outlived its deadline, and below it, a line each, what it said.
// The elements have the order of groups. Skipped cases are no failures. It
// returns when all cases have ended; err means that the suite could not run.
func Failures(env Env, groups []Group) (failed []string, err error) {
	p, err := newPool(env)
	if err != nil {
		return nil, err
	}
	defer p.close()
	type job struct {
		name string
		cs   Case
		said string // with it, the case failed
		err  error
	}
	var jobs []*job
	for _, g := range groups {
		for _, cs := range g.Cases {
			jobs = append(jobs, &job{name: g.Name + "/" + cs.Name, cs: cs})
		}
	}
	queue := make(chan *job)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		workers.Go(func() {
			for j := range queue {
				j.said, j.err = p.failure(j.name, j.cs)
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	workers.Wait()
	var errs []error
	for _, j := range jobs {
		if j.said != "" {
			failed = append(failed, j.said)
		}
		errs = append(errs, j.err)
	}
	return failed, errors.Join(errs...)
}

// failure runs one case; said is empty unless it failed.
func (p *pool) failure(name string, cs Case) (said string, err error) {
	if _, missing := p.missing(cs); missing {
		return "", nil
	}
	r, err := p.get()
	if err != nil {
		return "", err
	}
	res, err := p.do(r, name, cs)
	if err != nil {
		return name + "\n" + err.Error(), nil
	}
	if !res.Failed {
		return "", nil
	}
	return strings.Join(append([]string{name}, res.Log...), "\n"), nil
}
