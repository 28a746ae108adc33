import { describe, expect, it } from 'vitest'
import { openOutput, readable } from '../../src/launcher/output.ts'

const time = new Date(2026, 0, 2, 12, 30, 1).toISOString()
const line = (members: object) => JSON.stringify({ level: 'info', time, name: 'web', pid: 7, ...members })

describe('a readable log line', () => {
  it('has time, source, level, message and the other members', () => {
    const text = line({ msg: 'request', status: 200, path: '/items', note: 'two words', err: undefined })
    expect(readable('web', text)).toBe('12:30:01 web         info  request status=200 path=/items note="two words"')
  })

  it('ends with the reason of a warning and shows the stack of an error below', () => {
    const plain = line({ level: 'warn', msg: 'retry', err: { type: 'Error', message: 'no route' } })
    expect(readable('mail', plain)).toBe('12:30:01 mail        warn  retry: Error: no route')
    const deep = line({ level: 'error', msg: 'failed', err: { message: 'm', stack: 'Error: m\n    at f' } })
    expect(readable('mail', deep)).toBe('12:30:01 mail        error failed\n    Error: m\n        at f')
  })

  it('shows what clients have sent as text, not as lines or commands of the terminal', () => {
    const evil = '\n{"level":"error","msg":"forged"}\r\x1b[2J\x9b2J\u2028\u202e'
    const said = readable('web', line({ msg: evil, path: '\x1b[2J\x9b2J', note: evil }))
    const warned = readable('web', line({ level: 'warn', msg: 'w', err: { type: 'Error', message: evil } }))
    const failed = readable('web', line({ level: 'error', msg: 'f', err: { stack: `Error: ${evil}\n    at f` } }))
    for (const text of [said, warned, readable('web', evil)]) expect(text).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}]/u)
    expect(said).toContain('path=\\u{1b}[2J\\u{9b}2J')
    expect(failed.split('\n').slice(1)).toEqual(Array(3).fill(expect.stringMatching(/^ {4}[^\p{Cc}\p{Cf}\p{Zl}]+$/u)))
  })

  it.each(['plain words', '{ cut', '{"no":"log line"}', '', '{"level":"info","time":"x"'])(
    'leaves %j as text',
    (text) => {
      expect(readable('web', text)).toBe(`         web         ${text}`)
    },
  )
})

describe('the output', () => {
  const written = (raw: boolean) => {
    const texts = { stdout: '', stderr: '' }
    const sink = (name: 'stdout' | 'stderr') => ({
      write: (text: string) => {
        texts[name] += text
      },
    })
    return { texts, output: openOutput(raw, { stdout: sink('stdout'), stderr: sink('stderr') }) }
  }

  it('passes lines on unchanged when it is for machines', () => {
    const { texts, output } = written(true)
    output.line('web', line({ msg: 'm' }))
    output.note('warn')('ours')
    const [first, second] = texts.stdout.trim().split('\n')
    expect(first).toBe(line({ msg: 'm' }))
    expect(JSON.parse(second!)).toMatchObject({ level: 'warn', name: 'start', msg: 'ours' })
  })

  it('tells why a start failed on standard error', () => {
    const { texts, output } = written(false)
    output.complain('PORT: taken')
    expect(texts).toEqual({ stdout: '', stderr: 'PORT: taken\n' })
  })
})
