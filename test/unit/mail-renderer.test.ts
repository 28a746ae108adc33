import { afterAll, describe, expect, it } from 'vitest'
import { TemplateError } from '../../src/adapters/liquid.ts'
import { openRenderer } from '../../src/features/messaging/templates/renderer.ts'

const renderer = openRenderer()
afterAll(() => renderer.close())

const render = (body: string, subject = 'S', variables = {}, recordedVariables = variables) =>
  renderer.render({ template: { subject, body }, variables, recordedVariables })

const rescue = { html: 'still here', subject: 'S', text: 'still here\n', recordedSubject: 'S' }

/** One expression that takes many seconds: the library asks for its time limit only between tags. */
const unending = `{% capture x %}${'a'.repeat(200_000)}{% endcapture %}
{% if ${Array(10_000).fill("x contains 'aab'").join(' or ')} %}{% endif %}`

describe('the renderer', () => {
  it('makes all parts of a mail, the recorded subject without the secret', async () => {
    const mail = await render('<p>{{ code }}</p>', 'Code {{ code }}', { code: '42' }, { code: '•••' })
    expect(mail).toEqual({ html: '<p>42</p>', text: '42\n', subject: 'Code 42', recordedSubject: 'Code •••' })
  })

  it.each([
    ['loops', '{% for i in (1..3000) %}{% for j in (1..3000) %}{% assign x = i %}{% endfor %}{% endfor %}'],
    ['an endless range', '{% for i in (1..1000000000) %}{% endfor %}'],
    ['a wide date', `{{ 'now' | date: '%9999999d' }}`],
    [
      'a doubled text',
      `{% assign x = 'aaaaaaaa' %}{% for i in (1..40) %}{% assign x = x | append: x %}{% endfor %}{{ x }}`,
    ],
    ['deep nesting', '{% if true %}'.repeat(20_000)],
    [
      'a replacement of everything',
      `{% assign x = 'aaaaaaaaaa' | replace: 'a', 'aaaaaaaaaa' | replace: 'a', 'aaaaaaaaaa' %}{% for i in (1..8) %}{% assign x = x | replace: 'a', x %}{% endfor %}{{ x }}`,
    ],
  ])('ends %s within its second, and renders the next', async (_name, body) => {
    const broken = expect(render(body)).rejects.toThrow(TemplateError)
    const next = render('still here')
    await broken
    expect(await next).toEqual(rescue)
  })

  it('ends what the limits of the library do not see, and renders the next', async () => {
    const broken = expect(render(unending)).rejects.toThrow('takes longer than a second')
    const next = render('still here')
    await broken
    expect(await next).toEqual(rescue)
  })

  it('answers everybody in turn', async () => {
    const mails = await Promise.all(Array.from({ length: 50 }, (_, n) => render('{{ n }}', 'S', { n })))
    expect(mails.map(({ html }) => html)).toEqual(Array.from({ length: 50 }, (_, n) => String(n)))
  })
})
