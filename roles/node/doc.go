// Package node is the frontend that a node's kubelet talks to: the CSI node
// service of the replicated driver (contract D16, D17).
//
// # What it owns
//
// Looking up a volume and the credentials to mount it, by name; asking the mount
// owner for every mount; renewing the credentials of what is mounted; translating
// the owner's answers.
//
// # What it does not own
//
// Mounts, sessions and the kubelet's folders: the mount owner (roles/mountowner)
// has them, and is the only one of the two with privileges. It has no API token,
// and this one has no right to mount.
//
// # Invariants
//
//   - The process keeps nothing: what is mounted is the owner's answer, what a
//     volume is the API's.
//   - Credentials go to a socket only that root or the own user serves.
//   - Unpublishing and unstaging need the owner, and nothing of the API.
//
// # What a crash does
//
// Nothing to mounts. The kubelet repeats the call that had no answer.
package node
