package api

import (
	"fmt"
	"strings"
)

// Drivers.
const (
	DriverReplicated = "csi.replicated.tak-os.org"
	DriverLocal      = "csi.local.tak-os.org"
	DriverPerNode    = "per-node.liken.sh"
)

// Namespaces. The driver's own is a flag; the others are fixed.
const (
	DefaultNamespace = "kube-system"
	CANamespace      = "tak-replicated-ca"    // authorities' keys: the manager only
	TrustNamespace   = "tak-replicated-trust" // leaf keys and tokens: nodes get by name
)

// Labels, annotations and finalizers.
const (
	LabelVolume  = DriverReplicated + "/volume"
	LabelReplica = DriverReplicated + "/replica" // the replica's index

	// AnnotationReplicas on an application's claim overrides its class.
	AnnotationReplicas = DriverReplicated + "/replicas"
	// AnnotationIncarnation on a backing claim says for which life of the
	// replica it was made.
	AnnotationIncarnation = DriverReplicated + "/incarnation"
	// LabelBootstrap is on worker Pods that may initialise an empty folder.
	LabelBootstrap = DriverReplicated + "/bootstrap"
	// AnnotationSelectedNode tells the backing provisioner where a claim goes.
	AnnotationSelectedNode = "volume.kubernetes.io/selected-node"

	// FinalizerBackingUse keeps a backing claim while a host uses it.
	FinalizerBackingUse = DriverReplicated + "/backing-use"
	// FinalizerVolume keeps a ReplicatedVolume until nothing is left of it.
	FinalizerVolume = DriverReplicated + "/volume"
)

// Field owners of server-side apply.
const (
	FieldOwnerManager = "replicated-manager"
	hostFieldOwner    = "replica-host/"
)

// HostFieldOwner is the field owner of the replica host on a node.
func HostFieldOwner(node string) string { return hostFieldOwner + node }

// A replica host is ready when the container of this name, in a Pod with this
// label in the driver's namespace, is.
const (
	LabelComponent     = DriverReplicated + "/component"
	ComponentNode      = "node"
	ComponentWorker    = "worker"
	ComponentManager   = "manager"
	ContainerHost      = "replica-host"
	ContainerWorker    = "worker"
	ManagerLease       = "tak-replicated-manager"
	DefaultClusterName = "cluster.local"
)

// WorkerPort is the port of every replica's Service.
const WorkerPort = 7420

// WorkerPortName is its name in Services and EndpointSlices.
const WorkerPortName = "replica"

// ReplicaName is the name of replica index (from 1) of a volume. Its Service,
// EndpointSlice, leaf Secret, worker Pod and the name in its certificates are
// all called so.
func ReplicaName(volume string, index int32) string { return fmt.Sprintf("%s-r%d", volume, index) }

// BackingClaimName is the name of the PersistentVolumeClaim of a life of a
// replica: the replica's name, and for later lives than the first its number.
func BackingClaimName(volume string, index int32, incarnation int64) string {
	if incarnation <= 1 {
		return ReplicaName(volume, index)
	}
	return fmt.Sprintf("%s-i%d", ReplicaName(volume, index), incarnation)
}

// ClientSecret and OperatorSecret name the Secrets of the mount owners' and the
// operators' credentials, in TrustNamespace.
func ClientSecret(volume string) string   { return volume + "-client" }
func OperatorSecret(volume string) string { return volume + "-operator" }

// CASecret names the Secret of the volume's authority, in CANamespace.
func CASecret(volume string) string { return volume }

// ServiceDNS is the name under which a replica is reached, and which its
// server certificate has.
func ServiceDNS(volume string, index int32, namespace, clusterDomain string) string {
	return fmt.Sprintf("%s.%s.svc.%s", ReplicaName(volume, index), namespace, clusterDomain)
}

// VolumeName is the name of the volume that is provisioned for a claim.
func VolumeName(claimUID string) string { return "pvc-" + claimUID }

// ClaimUID is the UID in a provisioned volume's name; false for other names.
func ClaimUID(volume string) (string, bool) { return strings.CutPrefix(volume, "pvc-") }

// Labels are the labels of what is made for a replica; index 0 stands for what
// is made for the whole volume.
func Labels(volume string, index int32) map[string]string {
	l := map[string]string{LabelVolume: volume}
	if index != 0 {
		l[LabelReplica] = fmt.Sprint(index)
	}
	return l
}
