package explain

// Commands that more than one entry names.
const (
	describe    = "`kubectl -n kube-system describe replicatedvolume VOLUME`"
	hostLogs    = "`kubectl -n kube-system logs POD -c replica-host`, POD being the NODE Pod of that node"
	managerLogs = "`kubectl -n kube-system logs deploy/tak-replicated-manager`"
)

var conditions = []Entry{
	{"Provisioned", Condition, "True once every backing claim is bound, every replica has run and the volume has had a quorum. It never goes back.", describe, "while it is False, look up the condition's reason"},
	{"Available", Condition, "True while a coordinator with a quorum answers: files can be read and written.", describe, "when False, bring the replicas' nodes back; operations wait up to the mount's --quorum-wait and then fail with EIO"},
	{"Redundant", Condition, "True while every replica takes part and is caught up. When False the volume serves, but fewer failures are survived.", describe, "find the replica that is missing in status.replicas and look up its reason"},
	{"Published", Condition, "True once a PersistentVolume has named the volume. A volume that never had one, and whose claim is gone, is unwound.", describe, ""},
	{"Trusted", Condition, "True while all credentials of the volume are valid and renewed in time.", managerLogs, "when False, see to it that the manager runs and can write Secrets; mounts go on until their credentials expire"},
	{"StateLost", Condition, "True when a recorded replica has lost its journal or identity. It takes no part, and is never begun afresh by itself.", describe, "if the disk is gone for good, replace that replica with `tak-replicated ctl replace`; if it was not mounted, mount it and restart the host"},
	{"Transition", Condition, "How a requested change of the runtime from pod to shared goes.", describe, "look up its reason"},
	{"Replacement", Condition, "How a requested replacement of a replica goes. Absent while none was requested.", describe, "look up its reason"},
	{"Reclaim", Condition, "How the destruction of the volume goes. Copies on nodes that are away are destroyed when these come back.", describe, "look up its reason"},
}

var reasons = []Entry{
	{"Done", Reason, "Nothing is left to do.", "", ""},
	{"Quorum", Reason, "A majority of the replicas agrees on a coordinator.", "", ""},
	{"NoQuorum", Reason, "Too few replicas can reach each other: 1 of 1, 2 of 2, 2 of 3 or 3 of 4 are needed.", describe, "bring nodes or the network between them back; service returns by itself. A node that is lost for good: `tak-replicated ctl replace`"},
	{"Unknown", Reason, "Nobody could be asked. This says nothing about data.", managerLogs, "check the API server, the manager and the network from the manager to the replicas' Services"},
	{"CreatingCredentials", Reason, "The volume's authority, certificates and tokens are being made.", "", ""},
	{"BackingClaimPending", Reason, "A replica's backing claim is not bound yet.", "`kubectl -n kube-system describe pvc` of the claim that the message names", "the local driver or its space is missing on that node: see the claim's Events"},
	{"BackingClaimLost", Reason, "The PersistentVolume of a replica's backing claim is gone.", "`kubectl -n kube-system get pvc`; `tak-replicated ctl status` shows whether the copy is served", "a copy that has run goes on: its host has recorded which storage it is. Nothing keeps that any more, so replace the replica with `tak-replicated ctl replace`"},
	{"ReplicaStarting", Reason, "A replica has its disk and has not answered yet.", hostLogs, ""},
	{"PlacedAgain", Reason, "The backing provisioner gave the node up before the replica existed, so another node was chosen.", "", ""},
	{"TooFewEligibleNodes", Reason, "Fewer nodes than replicas can hold a copy. A node is eligible when it is Ready and schedulable, has the local driver with consumer publication, and a ready replica host.", "`kubectl get nodes,csinodes` and `kubectl -n kube-system get pods -o wide`", "make another node eligible, or create the claim with fewer replicas"},
	{"ReplicaBehind", Reason, "A replica follows, but has not applied everything yet.", "`tak-replicated ctl status`", "nothing as long as its lag shrinks; else look at its disk and the network"},
	{"ReplicaUnavailable", Reason, "A replica does not answer: its node, its host or the network is away. This is not a loss.", "`kubectl get nodes`, then " + hostLogs, "bring the node back"},
	{"ReplicaStateLost", Reason, "A recorded replica's journal or identity is missing, cut or of another replica. What application data is lost is unknown; the other copies are not concerned.", hostLogs, "check that the right disk is mounted; if it is lost, replace the replica with `tak-replicated ctl replace`. Never delete the record by hand: a replica that forgot its votes can split the volume"},
	{"AllReplicasInSync", Reason, "Every replica has everything.", "", ""},
	{"Renewed", Reason, "Credentials are as young as they have to be.", "", ""},
	{"RenewFailed", Reason, "Credentials could not be renewed. Mounts and replicas go on until the old ones expire (tokens 24 h, certificates 90 days).", managerLogs, "give the manager access to its Secrets again"},
	{"ObservedGenerationStale", Reason, "The requested transition names a generation that is no longer the resource's.", describe, "read the resource again and request the transition with its present metadata.generation"},
	{"ConsumersPresent", Reason, "A mount has the volume open.", "`tak-replicated ctl status` lists sessions", "stop the Pods that use the volume"},
	{"NodeNotReady", Reason, "The node of a replica is not Ready.", "`kubectl get nodes`", "bring the node back"},
	{"WorkersStopping", Reason, "Worker Pods are being deleted.", "", ""},
	{"ReplicasStarting", Reason, "Hosts are taking the replicas over.", hostLogs, ""},
	{"AlreadyInEffect", Reason, "The requested runtime is the present one.", "", "remove the request"},
	{"OneWay", Reason, "A volume that runs in shared hosts does not go back to Pods.", "", "remove the request"},
	{"TransitionPending", Reason, "A transition was requested and has not begun.", managerLogs, ""},
	{"IncarnationStale", Reason, "The request names a life of the replica that is not the present one: it was replaced already, or another replica was meant.", describe, "request the replacement with the life that `tak-replicated ctl volumes` shows"},
	{"ReplacementBusy", Reason, "The volume is not provisioned yet, a transition is under way, or too many replaced copies wait for their nodes.", describe, "wait for what the message names; the request is taken up by itself"},
	{"RuntimeNotShared", Reason, "The volume runs in worker Pods, which stay where they are.", "", "request its transition to Shared first"},
	{"NodeNotEligible", Reason, "The node that the request names can't take the copy.", "`kubectl get nodes,csinodes`", "name another node, or none"},
	{"QuorumPresent", Reason, "A forced replacement was requested, and the replica that is to be given up is alive, or the volume has a quorum.", describe, "request the replacement without force"},
	{"SurvivorNotReady", Reason, "A forced replacement was requested, and the replica that would go on alone does not run.", hostLogs, "bring its node back"},
	{"ReplacementBegins", Reason, "The replacement is accepted; a backing claim for the new copy is made.", "", ""},
	{"ReplicaJoining", Reason, "The new copy receives what the others have; then one change makes it a member and bars the former one. The message has the progress.", describe, ""},
	{"ReplicaRefused", Reason, "The coordinator refuses to let the new copy in; the message says why.", hostLogs, "this is a fault of the program or of records that were changed by hand: keep the logs"},
	{"VolumeInUse", Reason, "A PersistentVolume or claim still names the volume.", "`kubectl get pv,pvc -A`", "delete the claim first"},
	{"NotRequested", Reason, "Nobody asked for the volume's destruction.", "", ""},
	{"Fencing", Reason, "The quorum is asked to end the volume, so that no mount can write any more.", describe, "this needs the quorum: bring the replicas back if it lasts"},
	{"Fenced", Reason, "The volume has ended; no mount can open it.", "", ""},
	{"WaitingForRelease", Reason, "A host has not said yet that it closed its replica and gave the disk back.", hostLogs, "a node that is away delays only its own copy; bring it back, or delete the Node object if it is gone for good"},
	{"ReclaimingBackingClaims", Reason, "Backing claims are being deleted, and the copies with them.", "", ""},
	{"RemovingCredentials", Reason, "The volume's Secrets are being removed.", "", ""},
	{"UnwindingAbandonedVolume", Reason, "The claim was deleted before the volume was complete; what was made is removed.", "", ""},
	{"OldSchema", Reason, "The installed ReplicatedVolume resource definition lacks fields that this version needs. Nothing is provisioned.", "`kubectl get crd replicatedvolumes.replicated.tak-os.org -o yaml`", "apply manifests/crd of this version"},
}

var hostReasons = []Entry{
	{"WaitingForBackingClaim", Host, "The replica's claim is not bound to a volume on this node yet.", "`kubectl -n kube-system describe pvc`", ""},
	{"WaitingForPublication", Host, "The local driver has not handed the disk over.", "logs of the local driver on that node", "see that the local driver runs with --consumer-mount-root"},
	{"PublicationConflict", Host, "The local driver refuses: something else has the backing volume mounted, or another consumer holds it.", "the message names the holder", "stop what uses the backing volume"},
	{"WaitingForMount", Host, "The disk was handed over, but its mount has not appeared in the host's own mount namespace.", hostLogs, "the consumer folder must be mounted HostToContainer in the host and Bidirectional in the local driver"},
	{"TooManyWorkers", Host, "The node has as many replicas as --max-workers allows.", "`tak-replicated ctl status`", "add a node, move replicas, or raise the bound together with the host's memory"},
	{"TooManyStarts", Host, "Other replicas are starting; this one is next in turn.", "", ""},
	{"NoFreePort", Host, "All ports of the range are given to replicas.", hostLogs, "widen the range of ports"},
	{"NoCredentials", Host, "The replica's Secret is missing and there is no cached copy that is still valid.", "`kubectl -n tak-replicated-trust get secrets`", "see that the manager runs; it makes and renews Secrets"},
	{"Replaced", Host, "A later life has taken this replica's place: it is barred, and its copy goes as soon as the manager asks for it.", "", ""},
	{"ReplicaLocked", Host, "Another process on the node serves this replica, or has not ended yet.", hostLogs, "two hosts on one node? End the old one"},
	{"IdentityConflict", Host, "The files on the disk belong to another volume, replica or incarnation.", hostLogs, "the wrong disk is mounted there; mount the right one"},
	{"RecordUnreadable", Host, "What this node's disk has recorded of the replica can't be read: the file is damaged, or of a newer release. The replica does not take part and is never begun afresh; the other replicas of the node are not concerned, and the file is kept.", hostLogs, "the message names the file: put back the release that wrote it, or the file from a backup of the node, and restart the host; else replace the replica with `tak-replicated ctl replace`. Don't delete the file: it says which storage the replica has, and that it was begun"},
	{"ReplicaStateLost", Host, "This replica was begun before, and its journal or identity is gone or cut.", hostLogs, "see ReplicaStateLost above"},
	{"WorkerFailed", Host, "The replica's worker ended with an error. It is started again after a while.", hostLogs, "a disk error: replace the disk and then the replica"},
	{"Serving", Host, "The replica takes part.", "", ""},
	{"WaitingForCheckpointSlot", Host, "The replica needs a checkpoint, and the coordinator's host sends as many at once as it may.", "`tak-replicated ctl status` of the coordinator's node", ""},
	{"CatchingUp", Host, "The replica receives what it missed.", "`tak-replicated ctl status` shows how far it is", ""},
	{"ClosingWorker", Host, "The replica is being closed so that its disk can be given back.", "", ""},
	{"Unpublishing", Host, "The local driver takes the disk back.", "", ""},
	{"Released", Host, "The replica is closed and its disk given back.", "", ""},
}
