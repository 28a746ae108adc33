import { describe, expect, it } from 'vitest'
import { endsUpload, inWords } from '../../console/src/pages/data/upload-result.ts'

const refusal = (name: string, title: string, advice?: string) => ({
  name,
  why: { title, details: [], advice, requestId: undefined },
})

describe('what became of files that were to be uploaded', () => {
  it.each([
    [
      { chosen: 1, uploaded: 0, refused: [refusal('a.png', 'Too large', 'Choose a smaller one')], isStopped: false },
      { title: 'a.png was not uploaded', text: 'Too large · Choose a smaller one' },
    ],
    [
      {
        ...{ chosen: 4, uploaded: 2, isStopped: false },
        refused: [refusal('a.png', 'Too large', 'Choose a smaller one'), refusal('b.png', 'Denied')],
      },
      { title: '2 of 4 files were uploaded', text: 'a.png: Too large · b.png: Denied · Choose a smaller one' },
    ],
    [
      {
        ...{ chosen: 9, uploaded: 2, isStopped: false },
        refused: ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) => refusal(name, 'Denied', 'Ask')),
      },
      {
        title: '2 of 9 files were uploaded',
        text: 'a: Denied · b: Denied · c: Denied · d: Denied · e: Denied · and 2 more · Ask',
      },
    ],
    [
      { chosen: 3, uploaded: 1, refused: [], isStopped: true },
      { title: 'The upload was stopped', text: '1 of 3 files were uploaded' },
    ],
    [
      { chosen: 1, uploaded: 0, refused: [], isStopped: true },
      { title: 'The upload was stopped', text: '' },
    ],
  ])('%o', (result, words) => expect(inWords(result)).toEqual(words))

  it('is the fault of one file, or of what all of them need', () => {
    expect([400, 403, 413, 415].filter(endsUpload)).toEqual([])
    expect([0, 401, 429, 500, 503, 507].every(endsUpload)).toBe(true)
  })
})
