import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { Redis } from 'ioredis'
import { afterAll } from 'vitest'

export type TestUpstash = {
  readonly url: string
  readonly token: string
  /** Commands that it was sent. */
  readonly commands: readonly string[]
  /** While true it answers nothing. */
  hanging: boolean
}

/**
 * Upstash's REST protocol in front of a real Redis: a POST of one command as JSON is answered by `{"result":…}`, texts
 * in base64 where the client asks for it, `{"error":…}` with 400 for what Redis refuses and 401 without the token.
 */
export async function startUpstash(redisUrl: string): Promise<TestUpstash> {
  const redis = new Redis(redisUrl)
  redis.on('error', () => undefined)
  const token = 'a token for tests'
  const commands: string[] = []
  const server = createServer(async (request, response) => {
    const [command, ...values] = JSON.parse(await text(request)) as [string, ...string[]]
    commands.push(command)
    if (state.hanging) return
    const answer = (status: number, body: object) => response.writeHead(status).end(JSON.stringify(body))
    if (request.headers.authorization !== `Bearer ${token}`) return answer(401, { error: 'Unauthorized' })
    return redis.call(command, ...values).then(
      (result) => answer(200, { result: encoded(request, result) }),
      (error: Error) => answer(400, { error: error.message }),
    )
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  afterAll(() => {
    server.closeAllConnections()
    server.close()
    redis.disconnect()
  })
  const state = { url: `http://127.0.0.1:${port}`, token, commands, hanging: false }
  return state
}

function encoded({ headers }: IncomingMessage, result: unknown): unknown {
  const isWanted = headers['upstash-encoding'] === 'base64'
  return isWanted && typeof result === 'string' && result !== 'OK' ? Buffer.from(result).toString('base64') : result
}
