// The scenario of tests/process/test_api_clients.py with the Go client that oapi-codegen makes from openapi.json.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// show prints an answer. An error of the API ends the program.
func show(body []byte, status string, err error) {
	if err != nil || status >= "4" {
		fmt.Fprintln(os.Stderr, status, string(body), err)
		os.Exit(1)
	}
	fmt.Println(string(body))
}

func pointer[T any](value T) *T { return &value }

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	api, err := New(os.Args[1], "") // of the page
	if err != nil {
		panic(err)
	}
	for _, order := range []struct {
		number int
		delay  string
	}{{7, "30m"}, {8, "1h"}} {
		task := Task{Payload: map[string]int{"order": order.number}, Delay: &order.delay}
		stored, err := Put(ctx, api, "email", "order-7", task)
		text, _ := json.Marshal(stored)
		show(text, "", err)
	}
	read, err := api.GetTaskWithResponse(ctx, "email", "order-7")
	show(read.Body, read.Status(), err)
	moved, err := api.RescheduleTaskWithResponse(ctx, "email", "order-7", When{Delay: pointer("3h")})
	show(moved.Body, moved.Status(), err)
	batch, err := api.ScheduleBatchWithResponse(ctx, &ScheduleBatchParams{}, Batch{Tasks: []NamedTask{
		{Kind: pointer("email"), Id: pointer("b1"), Delay: pointer("1h")},
		{Kind: pointer("email"), Id: pointer("b2"), Delay: pointer("2h")},
	}})
	show(batch.Body, batch.Status(), err)
	page, err := api.ListTasksWithResponse(ctx, &ListTasksParams{Limit: pointer[int64](2)})
	show(page.Body, page.Status(), err)
	rest, err := api.ListTasksWithResponse(ctx, &ListTasksParams{Limit: pointer[int64](2), Cursor: page.JSON200.Cursor})
	show(rest.Body, rest.Status(), err)
	cancelled, err := api.CancelTaskWithResponse(ctx, "email", "order-7", nil)
	show(cancelled.Body, cancelled.Status(), err)
	letters, err := api.ListDeadLettersWithResponse(ctx, &ListDeadLettersParams{})
	show(letters.Body, letters.Status(), err)
	// Fields that are left out are absent in the JSON.
	redrive := Redrive{Ids: &[]string{"email:dead"}, DryRun: pointer(true)}
	redriven, err := api.RedriveDeadLettersWithResponse(ctx, redrive)
	show(redriven.Body, redriven.Status(), err)
	refused, err := api.GetTaskWithResponse(ctx, "email", "order-8")
	if err != nil || refused.ApplicationproblemJSONDefault.Type != "urn:delayq:not-found" {
		panic(string(refused.Body))
	}
}
