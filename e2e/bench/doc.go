// Command bench compares this filesystem with others on one machine: the same
// workloads (fsbench) on three replicas started by "dev --processes", on peers
// with three copies, and on the local disk, interleaved over several rounds.
// It prints medians and ratios of medians as a Markdown table.
//
//	go run ./e2e/bench -suite DIR [-rounds 3] [-targets ours,ours-idle,ours-both,gluster,moosefs,local] [-only create4k,…]
//
// DIR holds fsbench/ (the workloads' source) and peers.sh (which starts and
// stops the peers). Run it as root on an otherwise idle machine.
package main
