// Evaluates the expressions of a file as Kubernetes does, and prints the outcome of each:
// true, false, error, or invalid if Kubernetes refuses it.
//
// In an empty folder with this file:
//
//	go mod init outcomes && go get k8s.io/dynamic-resource-allocation@v0.36.3
//	go run . < expressions.json > outcomes.json
package main

import (
	"context"
	"encoding/json"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

type corpus struct {
	Device      resourceapi.Device
	Expressions map[string][]string
}

func main() {
	var read corpus
	if err := json.NewDecoder(os.Stdin).Decode(&read); err != nil {
		panic(err)
	}
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	device := cel.Device{
		Driver:     "gpu.nvidia.com",
		Attributes: read.Device.Attributes,
		Capacity:   read.Device.Capacity,
	}
	outcomes := map[string]string{}
	for _, expressions := range read.Expressions {
		for _, expression := range expressions {
			outcomes[expression] = outcome(compiler.CompileCELExpression(expression, cel.Options{}), device)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(outcomes); err != nil {
		panic(err)
	}
}

func outcome(compiled cel.CompilationResult, device cel.Device) string {
	if compiled.Error != nil {
		return "invalid"
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), device)
	if err != nil {
		return "error"
	}
	if matches {
		return "true"
	}
	return "false"
}
