import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { NoArrayError, readJsonArray } from '../../src/features/data/items/json-array.ts'

const roomy = { largestElement: 1_000_000 }

async function elements(chunks: Iterable<string>, limits = roomy): Promise<unknown[]> {
  const values: unknown[] = []
  for await (const { value } of readJsonArray(streamOf(chunks), limits)) values.push(value)
  return values
}

async function* streamOf(chunks: Iterable<string>) {
  yield* chunks
}

function cut(text: string, sizes: readonly number[]): string[] {
  const chunks: string[] = []
  let at = 0
  for (const size of sizes) {
    chunks.push(text.slice(at, at + size))
    at += size
  }
  return [...chunks, text.slice(at)]
}

describe('an array', () => {
  it('is read as JSON.parse would, however its text is cut', async () => {
    const list = fc.array(fc.jsonValue({ maxDepth: 4 }), { maxLength: 8 })
    const space = fc.constantFrom(undefined, 1, '\t')
    const sizes = fc.array(fc.nat({ max: 7 }), { maxLength: 60 })
    await fc.assert(
      fc.asyncProperty(list, space, sizes, async (values, indent, lengths) => {
        const text = JSON.stringify(values, undefined, indent)
        expect(await elements(cut(text, lengths))).toEqual(JSON.parse(text))
      }),
    )
  })

  it('is read element by element: the first is there before the last has come', async () => {
    const seen: unknown[] = []
    async function* slow() {
      yield ' [ {"n":1} , {"n"'
      seen.push('asked for more')
      yield ':2}]\n'
    }
    for await (const { value, length } of readJsonArray(slow(), roomy)) seen.push(value, length)
    expect(seen).toEqual([{ n: 1 }, 9, 'asked for more', { n: 2 }, 8])
  })

  it('takes brackets, commas and quotes in strings for text', async () => {
    const values = [{ 'k]},"': '],[{"\\' }, '\\"', ['\\\\', '"]']]
    const text = JSON.stringify(values)
    expect(await elements([...text])).toEqual(values)
  })
})

describe('text that is no array of elements', () => {
  const cases: [string, new (...args: never[]) => Error][] = [
    ['{"a":1}', NoArrayError],
    ['null', NoArrayError],
    ['"[1]"', NoArrayError],
    ['text', SyntaxError],
    ['{"a":', SyntaxError],
    ['[', SyntaxError],
    ['[1', SyntaxError],
    ['["open', SyntaxError],
    ['[1,]', SyntaxError],
    ['[,1]', SyntaxError],
    ['[1 2]', SyntaxError],
    ['[{]]', SyntaxError],
    ['[}]', SyntaxError],
    ['[[}]', SyntaxError],
    ['[1]]', SyntaxError],
    ['[1],', SyntaxError],
    ['[1][2]', SyntaxError],
    ['[1] \u00a0', SyntaxError],
  ]
  it.each(cases)('%s', async (text, kind) => {
    for (const chunks of [[text], [...text]]) await expect(elements(chunks)).rejects.toBeInstanceOf(kind)
  })

  it('is nothing where it is empty', async () => {
    for (const text of ['', ' \r\n\t', '[]', ' [\n] ']) expect(await elements([...text])).toEqual([])
  })

  it('is refused where an element is too large or too deep, before it has come to its end', async () => {
    async function* endless() {
      yield '[1,{"a":"'
      for (;;) yield 'x'.repeat(100)
    }
    const read = async () => {
      for await (const _ of readJsonArray(endless(), { largestElement: 1000 }));
    }
    await expect(read).rejects.toThrow('item 2 is too large')
    const deep = `[${'{"a":'.repeat(501)}`
    await expect(elements([deep])).rejects.toThrow('item 1 is nested too deeply')
  })
})
