package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

var commands = map[string]func(args []string) error{
	"pause":  pause,
	"append": func(args []string) error { return appendRecords(args[0]) },
	"hold":   func(args []string) error { return hold(args[0]) },
	"check":  func(args []string) error { return check(args[0]) },
	"digest": func(args []string) error { return digest(args[0]) },
	"cat":    cat,
	"ls":     list,
	"write":  func(args []string) error { return write(args[0], strings.Join(args[1:], " ")+"\n") },
	"stat":   stat,
	"lock":   func(args []string) error { return tryLock(args[0]) },
	"fetch":  func(args []string) error { return fetch(args[0], args[1], args[2]) },
	"mounts": func([]string) error { return cat([]string{"/proc/self/mountinfo"}) },
}

// leastArgs of the commands that need some.
var leastArgs = map[string]int{"append": 1, "hold": 1, "check": 1, "digest": 1, "write": 2, "lock": 1, "fetch": 3}

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"pause"}
	}
	command, ok := commands[args[0]]
	if !ok || len(args)-1 < leastArgs[args[0]] {
		fmt.Fprintln(os.Stderr, "usage: workload pause|append|hold|check|digest|cat|ls|stat|write|lock|fetch|mounts ...")
		os.Exit(2)
	}
	if err := command(args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "workload: %s: %v\n", args[0], err)
		os.Exit(1)
	}
}

// ended is closed at SIGTERM or SIGINT.
func ended() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	return c
}

// pause also reaps orphans: it is the pid 1 of Pods that share one.
func pause([]string) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	end := ended()
	for {
		select {
		case <-end:
			return nil
		case <-children:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}
