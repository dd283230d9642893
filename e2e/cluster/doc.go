// Package cluster runs the product on a real Kubernetes of several nodes, as its users
// do, and breaks it:
//
//	go test -tags e2e ./e2e/cluster -timeout 80m
//
// builds what is missing (programs), starts a control plane and nodes on this
// machine (lab), builds the product's image (e2e/image), installs manifests/ with
// kubectl apply -k, runs the scenarios, and leaves nothing behind. When something fails,
// logs and objects are collected in a folder that is named at the end.
//
//	E2E_KUBECONFIG=FILE     another cluster, on which the product is installed and the workload's image
//	                        loaded; scenarios that cut power or links are skipped there
//	E2E_LAB=keep            the cluster that labctl started, and leave it up
//	E2E_LOGS=FOLDER         where to collect logs (a folder in the system's temporary folder)
//
// Without the tag e2e only the tests of manifests/ themselves run: every overlay is built,
// every object is checked, and every container's arguments are parsed by its role.
package cluster
