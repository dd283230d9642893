package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// config is what the flags say.
type config struct {
	suite   string
	work    string
	rounds  int
	targets []string
	only    string
	files   int
	raw     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c config
	var targets string
	flag.StringVar(&c.suite, "suite", "", "folder with fsbench/ and peers.sh (required)")
	flag.StringVar(&c.work, "work", "/var/tmp/tak-bench", "scratch folder on the disk to be measured; removed afterwards")
	flag.IntVar(&c.rounds, "rounds", 3, "interleaved rounds")
	flag.StringVar(&targets, "targets", "ours,gluster,moosefs,local", "what to measure, in order")
	flag.StringVar(&c.only, "only", "", "comma-separated workloads; empty runs all of them")
	flag.IntVar(&c.files, "files", 2000, "small files per workload")
	flag.StringVar(&c.raw, "raw", "", "file to append every round's figures to, as JSON lines")
	flag.Parse()
	c.targets = strings.Split(targets, ",")
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run starts every target, measures them in turn, and stops them again.
func run(ctx context.Context, c config) (err error) {
	if c.suite == "" {
		return errors.New("-suite is required: the folder with fsbench/ and peers.sh")
	}
	if err := os.MkdirAll(c.work, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(c.work)
	fsbench := filepath.Join(c.work, "fsbench")
	if err := build(ctx, filepath.Join(c.suite, "fsbench"), fsbench, "."); err != nil {
		return err
	}
	r := newResults()
	for _, name := range c.targets {
		t, err := start(ctx, c, name)
		if err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		defer func() { err = errors.Join(err, t.stop()) }()
		r.targets = append(r.targets, t)
	}
	for round := range c.rounds {
		for _, t := range r.targets {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, c.rounds, t.name)
			syscall.Sync() // nobody pays for what the one before has left to be written
			if err := measure(ctx, c, fsbench, t, r); err != nil {
				return fmt.Errorf("round %d on %s: %w", round+1, t.name, err)
			}
		}
	}
	r.print(os.Stdout)
	return r.save(c.raw)
}

// build compiles the package pkg in dir into the file out.
func build(ctx context.Context, dir, out, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}

// measure runs the workloads once on a target, on all of its folders at once.
func measure(ctx context.Context, c config, fsbench string, t *target, r *results) error {
	outs, errs := make([][]byte, len(t.dirs)), make([]error, len(t.dirs))
	var all sync.WaitGroup
	for i, dir := range t.dirs {
		all.Go(func() {
			cmd := exec.CommandContext(ctx, fsbench, "-fs", t.name, "-dir", dir, "-only", c.only, "-files", fmt.Sprint(c.files))
			cmd.Stderr = os.Stderr
			tmp := filepath.Join(c.work, fmt.Sprint("tmp-", i)) // fsbench keeps an archive there
			cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
			if errs[i] = os.MkdirAll(tmp, 0o755); errs[i] == nil {
				outs[i], errs[i] = cmd.Output()
			}
		})
	}
	all.Wait()
	for _, f := range sums(outs) {
		r.add(f)
	}
	return errors.Join(errs...)
}
