import { expect, it } from 'vitest'
import { openByUse, untilMade } from '../../src/language/once.ts'

it('what was made is kept, a failure is not', async () => {
  let tries = 0
  const made = untilMade(async () => {
    tries += 1
    if (tries === 1) throw new Error('not yet')
    return tries
  })
  const first = [made(), made()]
  expect(await Promise.allSettled(first)).toMatchObject([{ status: 'rejected' }, { status: 'rejected' }])
  expect([await made(), await made()]).toEqual([2, 2])
})

it.each([
  ['never opened', 0],
  ['open', 1],
])('what is closed opens no more: %s', async (_what, uses) => {
  const did: string[] = []
  const { opened, close } = openByUse(
    async () => did.push('open'),
    async () => void did.push('close'),
    'it is closed',
  )
  for (let use = 0; use < uses; use += 1) await opened()
  await close()
  expect(did).toEqual(uses === 0 ? [] : ['open', 'close'])
  if (uses === 0) await expect(opened()).rejects.toThrow('it is closed')
})

it('what is being opened as it is closed is closed when it is open', async () => {
  const did: string[] = []
  const opening = Promise.withResolvers<string>()
  const { opened, close } = openByUse(
    () => opening.promise,
    async (it) => void did.push(`close ${it}`),
    'it is closed',
  )
  const asked = opened()
  const closed = close()
  opening.resolve('late')
  await Promise.all([asked, closed])
  expect(did).toEqual(['close late'])
})
