// Package api is the driver's vocabulary in a cluster: the custom resource
// ReplicatedVolume (group replicated.tak-os.org, version v1), and the names of
// everything that is made for a volume.
//
// # What a ReplicatedVolume is
//
// The record of intent and identity of one volume. It is written before
// anything is made for the volume, and goes when nothing is left of it. It is
// never on the path of a read or a write. Its name is the CSI volume's name
// and handle. All other names derive from it, so that every step that makes or
// removes something can be repeated by somebody who knows nothing else.
//
// # Who writes what
//
//	spec                     the manager; an operator writes spec.transition
//	status                   the manager (field owner FieldOwnerManager)
//	status.replicas[i]       the host of replica i (field owner
//	                         HostFieldOwner of its node), by server-side apply
//	status.retired[i]        likewise, the host of a copy that was replaced
//
// The manager reads the hosts' fields and never writes them, except that it
// removes those of a node that is no longer meant to have the replica.
//
// # Words
//
// A replica's life is its incarnation, counted from 1. "Generation" is
// metadata.generation only. The runtime in effect is status.runtime;
// spec.runtime is what the volume was made with.
//
// # What it does not own
//
// Calls to the API server (package kube), decisions (roles/manager), and the
// state of files: who leads, who has the volume open and what is durable is
// known from the replicas' log only.
//
// The YAML in manifests/crd is generated from these types; a test keeps both
// equal. Aliases of apimachinery's types are here so that other packages can
// speak of volumes without it.
//
// +kubebuilder:object:generate=true
// +groupName=replicated.tak-os.org
// +versionName=v1
package api
