import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Webhook } from 'standardwebhooks'

export type Received = {
  readonly id: string
  readonly body: any
  readonly text: string
  readonly headers: Record<string, string>
}

export type Receiver = {
  readonly url: string
  /** What came and was answered by 2xx, in its order. */
  readonly accepted: readonly Received[]
  /** Everything that came. */
  readonly received: readonly Received[]
  /** Answers the next requests; by default 204. */
  answer: (request: Received, response: ServerResponse) => unknown
  close(): Promise<void>
}

/** A receiver of webhooks that answers what it is told to. */
export async function startReceiver(): Promise<Receiver> {
  const accepted: Received[] = []
  const received: Received[] = []
  const server = createServer((request, response) => void take(request, response))
  const take = async (request: IncomingMessage, response: ServerResponse) => {
    let text = ''
    for await (const chunk of request.setEncoding('utf8')) text += chunk
    const headers = request.headers as Record<string, string>
    const one = { id: headers['webhook-id'] ?? '', text, body: JSON.parse(text || 'null'), headers }
    received.push(one)
    response.on('finish', () => response.statusCode < 300 && accepted.push(one))
    await receiver.answer(one, response)
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const receiver: Receiver = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    accepted,
    received,
    answer: (_request, response) => response.writeHead(204).end(),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
  return receiver
}

/** By the public package of the scheme; throws for what is not signed with the secret. */
export function verified({ text, headers }: Received, secret: string): unknown {
  return new Webhook(secret).verify(text, headers)
}
