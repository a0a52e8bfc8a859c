<?php
// An order service in PHP 8.1 or newer, with the extension curl. DELAYQ_URL is the address in the line `api` of `delayq run`:
//   DELAYQ_URL=http://127.0.0.1:8090 php web/checkout.php place 7
// Elsewhere, DELAYQ_TOKEN is a token of the API, and DELAYQ_CA a file with the CA of its certificate.
declare(strict_types=1);

const ATTEMPTS = 5;
const AGAIN = [0, 408, 429, 503]; // 0: no answer

/** Send a request until it has an answer that counts. A repeated one is harmless: the ID of the task is the same. */
function call(string $method, string $path, ?array $body = null): array
{
    static $curl = null;
    $curl ??= curl_init(); // one handle, so that the connection stays open
    for ($attempt = 1; ; $attempt++) {
        $seconds = 2 ** ($attempt - 1);
        curl_reset($curl);
        curl_setopt_array($curl, [
            CURLOPT_URL => getenv('DELAYQ_URL') . "/v1alpha1$path",
            CURLOPT_CUSTOMREQUEST => $method,
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_TIMEOUT => 10,
            CURLOPT_HTTPHEADER => array_filter([
                'Content-Type: application/json',
                getenv('DELAYQ_TOKEN') ? 'Authorization: Bearer ' . getenv('DELAYQ_TOKEN') : null,
            ]),
            CURLOPT_HEADERFUNCTION => function ($curl, string $line) use (&$seconds): int {
                if (preg_match('/^retry-after: (\d+)/i', $line, $found)) {
                    $seconds = max($seconds, (int) $found[1]);
                }
                return strlen($line);
            },
        ]);
        if (getenv('DELAYQ_CA')) {
            curl_setopt($curl, CURLOPT_CAINFO, getenv('DELAYQ_CA'));
        }
        if ($body !== null) {
            curl_setopt($curl, CURLOPT_POSTFIELDS, json_encode($body, JSON_THROW_ON_ERROR));
        }
        $answer = curl_exec($curl);
        $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
        if (!in_array($status, AGAIN, true) || $attempt === ATTEMPTS) {
            break;
        }
        sleep($seconds);
    }
    $said = json_decode((string) $answer, true) ?? ['detail' => curl_error($curl)];
    return $status >= 200 && $status < 300 ? $said : throw new RuntimeException($said['detail'], $status);
}

function task(string $order): string
{
    return '/tasks/cancel_unpaid/order-' . rawurlencode($order);
}

function place(string $order, string $delay = '30m'): array
{
    $payload = ['order' => is_numeric($order) ? +$order : $order];
    return call('PUT', task($order), ['delay' => $delay, 'payload' => $payload, 'tags' => ['web']]);
}

function extend(string $order, string $delay): array
{
    return call('PATCH', task($order), ['delay' => $delay]);
}

function paid(string $order): array
{
    try {
        return call('DELETE', task($order));
    } catch (RuntimeException $error) {
        // 409: its handler runs now; or it is a dead letter
        return $error->getCode() === 404 ? ['outcome' => 'cancelled or done before'] : throw $error;
    }
}

function tomorrow(): array
{
    [$from, $before] = array_map(fn ($day) => (new DateTimeImmutable($day))->format(DATE_ATOM), ['tomorrow', 'tomorrow +1 day']);
    $filter = ['kind' => 'cancel_unpaid', 'dueFrom' => $from, 'dueBefore' => $before];
    $found = [];
    do {
        $page = call('GET', '/tasks?' . http_build_query($filter));
        array_push($found, ...array_column($page['items'], 'id'));
        $filter['cursor'] = $page['cursor'] ?? null;
    } while ($filter['cursor']);
    return $found;
}

function cancel(string $tag, string $dryRun = ''): array
{
    return call('POST', '/tasks:cancel', ['tag' => $tag, 'kind' => 'cancel_unpaid', 'dryRun' => $dryRun === '--dry-run']);
}

try {
    echo json_encode($argv[1](...array_slice($argv, 2))), "\n";
} catch (RuntimeException $error) {
    fwrite(STDERR, $error->getMessage() . "\n");
    exit(1);
}
