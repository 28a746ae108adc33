import pino from 'pino'
import { describe, expect, it } from 'vitest'
import { answer, jsonOf, readMessage } from '../../src/api/realtime/messages.ts'

type Name = Parameters<typeof readMessage>[0]

const refusalOf = (name: Name, request: unknown): string | undefined => {
  try {
    readMessage(name, request)
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

describe('a message of a client', () => {
  it.each<[Name, unknown, string]>([
    ['subscribe', undefined, 'collection is required'],
    ['subscribe', { collection: 5 }, 'collection is required'],
    ['subscribe', { collection: 'x'.repeat(64) }, 'collection is required'],
    ['unsubscribe', 'book', 'collection is required'],
    ['report:subscribe', { aggregate: {} }, 'collection is required'],
    ['task:join', {}, 'taskId is required'],
    ['task:join', { taskId: -1 }, 'taskId is required'],
    ['task:leave', { taskId: '12345678901' }, 'taskId is required'],
    ['room:join', {}, 'Invalid room name'],
    ['room:join', { room: ' ' }, 'Invalid room name'],
    ['room:join', { room: 'x'.repeat(129) }, 'Invalid room name'],
    ['room:leave', { room: 'a\u0000b' }, 'Invalid room name'],
    ['room:members', { room: '\ud800' }, 'Invalid room name'],
    ['room:message', { room: 'r', event: 'kicked' }, 'Invalid event name'],
    ...['user:joined', 'user:left', 'creator:changed', 'resync'].map(
      (event) => ['room:message', { room: 'r', event }, 'Invalid event name'] as [Name, unknown, string],
    ),
    ['room:message', { event: 'said' }, 'Invalid room name'],
    ['room:kick', { room: 'r', userId: '' }, 'userId is required'],
    ['room:kick', { room: 'r', userId: 'x'.repeat(101) }, 'userId is required'],
    ['room:list', { prefix: 5 }, 'Invalid room name'],
  ])('%s %j is refused: %s', (name, request, refusal) => {
    expect(refusalOf(name, request)).toBe(refusal)
  })

  it.each<[Name, unknown]>([
    ['subscribe', { collection: 'book', filter: { title: { _eq: 'x' } }, since: null }],
    ['report:unsubscribe', undefined],
    ['task:join', { taskId: 7 }],
    ['task:join', { taskId: '7' }],
    ['room:join', { room: 'x'.repeat(128), metadata: { a: 1 } }],
    ['room:message', { room: 'r', event: 'joined' }],
    ['room:message', { room: 'r', event: 'message' }],
    ['room:message', { room: 'r', event: 'user:typing' }],
    ['room:list', undefined],
    ['room:list', { prefix: null }],
    ['room:list', { prefix: '' }],
    ['custom', 5],
  ])('%s %j is read', (name, request) => {
    expect(refusalOf(name, request)).toBeUndefined()
  })
})

describe('a member as JSON', () => {
  it('has no more than its characters, and no binary data', () => {
    expect(jsonOf('payload', { a: [1, null] }, 20)).toBe('{"a":[1,null]}')
    expect(() => jsonOf('payload', 'x'.repeat(19), 20)).toThrow('payload must be at most 20 characters of JSON')
    expect(() => jsonOf('metadata', { a: Buffer.from('x') }, 20)).toThrow('metadata must be JSON, without binary data')
  })
})

describe('an error of the database', () => {
  it.each([
    ['22P02', 'INVALID_VALUE', 'Invalid value', []],
    ['57P01', 'SERVICE_UNAVAILABLE', 'Service temporarily unavailable', [40]],
    ['42P01', 'INTERNAL_SERVER_ERROR', 'Internal server error', [50]],
  ])('with the state %s is answered as over HTTP', async (state, code, message, levels) => {
    const lines: string[] = []
    const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) })
    const replies: unknown[] = []
    await answer(
      { log },
      (reply: unknown) => void replies.push(reply),
      async () => {
        throw Object.assign(new Error('secret'), { code: state })
      },
    )
    expect(replies).toEqual([{ status: 'error', code, message }])
    expect(lines.map((line) => JSON.parse(line).level)).toEqual(levels)
  })
})
