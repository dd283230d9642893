// Package pernode is the CSI driver per-node.liken.sh: static volumes whose handle
// names one folder on each node that has mounted it (contract F).
//
// # What it owns
//
// Everything below its root on this node, which one process at a time has:
//
//	lock                taken by the process
//	records/HANDLE      one record a handle: whose copy this is, and who holds it
//	volumes/HANDLE/UID/ a copy: UID is the PersistentVolume's
//	trash/              removed copies on their way out
//
// # What it does not own
//
// What is in a copy, and whether it has caught up with others: that is the
// workload's. What PersistentVolumes and Pods there are: it asks a [Cluster].
//
// # Records
//
// A JSON object with version 1, whose unknown members are refused:
//
//	{"version":1,"handle":"…","pv":{"name":"…","uid":"…"},
//	 "hold":{"pod":{"namespace":"…","name":"…","uid":"…"},"targets":["/…"],"boot":"…","since":"RFC 3339"}}
//
// # Invariants
//
//   - A handle is held by at most one Pod of this node. That a handle is free and
//     that it is held now is one replacement of its record, made durable before
//     anything is mounted.
//   - A hold ends when its Pod's last target is unpublished. A hold from before the
//     machine started ends also when nothing of the copy is mounted and the cluster
//     says that there is no such Pod.
//   - A copy lies under the UID of its PersistentVolume, so that another
//     PersistentVolume with the same handle never finds it.
//   - A copy is removed only when the cluster has said that its PersistentVolume is
//     gone, nobody holds it, and it is mounted nowhere that can be seen. Without an
//     answer it stays.
//   - Without an answer from the cluster nothing new is published either.
//   - One call at a time works on a handle. Handles are DNS-1123 subdomains, and
//     every path below the root is opened through it, so that none escapes.
//
// # What a crash does
//
// Between record and mount: the hold is there, and the same Pod's next attempt, or
// its unpublication, goes on from it. While a copy is removed: it is in the trash or
// in its place, and the next look decides anew. Copies whose PersistentVolume was
// deleted while the node was away are found by [Driver.Run] at its start.
package pernode
