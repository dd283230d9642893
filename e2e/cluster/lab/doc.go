// Package lab runs a real Kubernetes of several nodes on one machine: a control
// plane and nodes with containerd, kubelet and kube-proxy, each in network, mount,
// uts, ipc, pid and cgroup namespaces of its own. No virtual machine, no
// registry. It needs root, and Linux with overlayfs.
//
// It owns everything below its folder, the network namespaces tak-e2e-*, and the
// cgroups tak-e2e. There is one cluster a machine: these names are fixed. Down
// removes all of it; processes are ended by the ids that Up noted, and only if their
// command line still names the folder. A cluster left by a process that died is
// taken down by the next Up.
//
// # What a node is
//
// Its root is a folder (nodes/nN/root) that survives Kill and Start as a disk does:
// images, hostPaths, the volumes of Pods. /usr is the machine's, read-only; /run
// is a tmpfs; /dev is the machine's. A power cut (Kill) ends the node's pid 1, and the
// kernel everything in its pid namespace with it: nobody cleans up. But the kernel is
// the machine's and lives on: data that was written and not synced is not lost.
//
// # Network
//
// The hub is a network namespace with a bridge that all nodes are on; the control
// plane lives there. hub 10.200.0.1, node N 10.200.0.(10+N), Pods 10.244.N.0/24,
// Services 10.96.0.0/16 (from the hub through node 1). Nothing outside is reachable.
package lab
