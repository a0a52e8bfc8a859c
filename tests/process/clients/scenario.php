<?php
// The scenario of tests/process/test_api_clients.py with PHP: php scenario.php http://127.0.0.1:8090
declare(strict_types=1);
[, $address] = $argv;

/** Print and return an answer; an error of the API ends the script. */
function call(string $method, string $path, ?array $body = null): array
{
    global $address;
    $options = ['method' => $method, 'timeout' => 10, 'ignore_errors' => true];
    if ($body !== null) {
        $options += ['header' => 'Content-Type: application/json', 'content' => json_encode($body)];
    }
    $answer = file_get_contents("$address/v1alpha1$path", false, stream_context_create(['http' => $options]));
    preg_match('/ (\d{3}) /', $http_response_header[0], $status);
    if ($status[1] >= 400) {
        fwrite(STDERR, $answer);
        exit(1);
    }
    echo $answer, "\n";
    return json_decode($answer, true, flags: JSON_THROW_ON_ERROR);
}

call('PUT', '/tasks/email/order-7', ['payload' => ['order' => 7], 'delay' => '30m']);
call('PUT', '/tasks/email/order-7', ['payload' => ['order' => 8], 'delay' => '1h']);
call('GET', '/tasks/email/order-7');
call('PATCH', '/tasks/email/order-7', ['delay' => '3h']);
call('POST', '/tasks:batch', ['tasks' => [
    ['kind' => 'email', 'id' => 'b1', 'delay' => '1h'],
    ['kind' => 'email', 'id' => 'b2', 'delay' => '2h'],
]]);
$page = call('GET', '/tasks?limit=2');
call('GET', '/tasks?limit=2&cursor=' . urlencode($page['cursor']));
call('DELETE', '/tasks/email/order-7');
call('GET', '/deadletters');
call('POST', '/deadletters:redrive', ['ids' => ['email:dead'], 'dryRun' => true]);
