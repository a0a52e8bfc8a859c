// An order service in Go, with the standard library. DELAYQ_URL is the address in the line `api` of `delayq run`:
//
//	DELAYQ_URL=http://127.0.0.1:8090 go run web/checkout.go place 7
//
// Elsewhere, DELAYQ_TOKEN is a token of the API, and SSL_CERT_FILE a file with the CA of its certificate.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"
)

const attempts = 5

var again = []int{http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable}

// Problem is an error of the API.
type Problem struct {
	Type   string `json:"type"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func (p *Problem) Error() string { return p.Detail }

type object map[string]any

var client = &http.Client{Timeout: 10 * time.Second} // it keeps connections open

// call sends a request until it has an answer that counts. A repeated one is harmless: the ID of the task is the same.
func call(method, path string, body object) (object, error) {
	for attempt := 1; ; attempt++ {
		answer, after, err := once(method, path, body)
		var problem *Problem
		if err == nil || attempt == attempts ||
			errors.As(err, &problem) && !slices.Contains(again, problem.Status) {
			return answer, err
		}
		time.Sleep(max(after, time.Second<<(attempt-1)))
	}
}

func once(method, path string, body object) (object, time.Duration, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, 0, err
	}
	if body == nil {
		content = nil
	}
	request, err := http.NewRequest(method, os.Getenv("DELAYQ_URL")+"/v1alpha1"+path, bytes.NewReader(content))
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token := os.Getenv("DELAYQ_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, 0, err
	}
	if response.StatusCode >= 400 {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		problem := &Problem{Status: response.StatusCode, Detail: string(text)} // of a proxy, it may be no JSON
		_ = json.Unmarshal(text, problem)
		return nil, time.Duration(seconds) * time.Second, problem
	}
	var answer object
	return answer, 0, json.Unmarshal(text, &answer)
}

func task(order string) string { return "/tasks/cancel_unpaid/" + url.PathEscape("order-"+order) }

func place(order, delay string) (any, error) {
	if delay == "" {
		delay = "30m"
	}
	var number any = order
	if n, err := strconv.Atoi(order); err == nil {
		number = n
	}
	return call("PUT", task(order), object{"delay": delay, "payload": object{"order": number}, "tags": []string{"web"}})
}

func paid(order string) (any, error) {
	answer, err := call("DELETE", task(order), nil)
	var problem *Problem
	if errors.As(err, &problem) && problem.Status == http.StatusNotFound {
		return object{"outcome": "cancelled or done before"}, nil
	}
	return answer, err // 409: its handler runs now; or it is a dead letter
}

func tomorrow() (any, error) {
	year, month, day := time.Now().Date()
	from := time.Date(year, month, day+1, 0, 0, 0, 0, time.Local)
	filter := url.Values{"kind": {"cancel_unpaid"}}
	filter.Set("dueFrom", from.Format(time.RFC3339))
	filter.Set("dueBefore", from.AddDate(0, 0, 1).Format(time.RFC3339))
	found := []any{}
	for {
		page, err := call("GET", "/tasks?"+filter.Encode(), nil)
		if err != nil {
			return nil, err
		}
		for _, each := range page["items"].([]any) {
			found = append(found, each.(map[string]any)["id"])
		}
		cursor, more := page["cursor"].(string)
		if !more {
			return found, nil
		}
		filter.Set("cursor", cursor)
	}
}

func run(command, first, second string) (any, error) {
	switch command {
	case "place":
		return place(first, second)
	case "extend":
		return call("PATCH", task(first), object{"delay": second})
	case "paid":
		return paid(first)
	case "tomorrow":
		return tomorrow()
	case "cancel":
		return call("POST", "/tasks:cancel", object{"tag": first, "kind": "cancel_unpaid", "dryRun": second == "--dry-run"})
	}
	return nil, fmt.Errorf("expected place, extend, paid, tomorrow or cancel, got %q", command)
}

func main() {
	argv := append(os.Args[1:], "", "", "")
	answer, err := run(argv[0], argv[1], argv[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(answer)
}
