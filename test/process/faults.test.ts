import { expect, it } from 'vitest'
import { runF42 } from '../faults/files.ts'
import { runF45 } from '../faults/flows.ts'
import { runF17, runF44 } from '../faults/followers.ts'
import { runF43 } from '../faults/senders.ts'
import { runF10 } from '../faults/storm.ts'

it('F-10, a small seed: what clients receive through every blow is what was committed', async () => {
  const seed = Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 32))
  const { faults, figures } = await runF10(seed, { writes: 1200, blows: 5 })
  process.stderr.write(`F-10: ${JSON.stringify(figures)}\n`)
  expect(faults).toEqual([])
  expect(figures.received).toBeGreaterThan(1000)
  expect(figures.breaks).toBeGreaterThan(0)
})

it('F-43, a small form: mails arrive beside those of senders whose servers fail', async () => {
  const seed = Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 32))
  const { faults, figures } = await runF43(seed, { healthy: 40, others: 10 })
  process.stderr.write(`F-43: ${JSON.stringify(figures)}\n`)
  expect(faults).toEqual([])
})

it('F-42, a small seed: files and their content stay together through every kill', async () => {
  const seed = Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 32))
  const { faults, figures } = await runF42(seed, { kills: 1 })
  process.stderr.write(`F-42: ${JSON.stringify(figures)}\n`)
  expect(faults).toEqual([])
  expect(figures.answered).toBeGreaterThan(10)
})

it('F-45, a small seed: executions of workflows end, with each effect once, through every blow', async () => {
  const seed = Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 32))
  const { faults, figures } = await runF45(seed, { executions: 40, blows: 5, crashes: false })
  process.stderr.write(`F-45: ${JSON.stringify(figures)}\n`)
  expect(faults).toEqual([])
  expect(figures.accepted).toBeGreaterThan(20)
})

it('F-44, a small seed: what follows the log handles each change once through every kill', async () => {
  const seed = Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 32))
  const { faults, figures } = await runF44(seed, { writes: 320, kills: 4, freezes: 1, crashes: 0 })
  process.stderr.write(`F-44: ${JSON.stringify(figures)}\n`)
  expect(faults).toEqual([])
  expect(figures.acknowledged).toBeGreaterThan(200)
})

it('F-17, a small form: a large transaction is followed in pages', async () => {
  const { faults, figures } = await runF17(0, { rows: 10_000 })
  process.stderr.write(`F-17: ${JSON.stringify(figures)}\n`)
  expect(faults).toEqual([])
})
