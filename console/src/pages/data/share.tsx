import { Check, Code2, Copy } from 'lucide-react'
import { useState } from 'react'
import { Button, IconButton } from '../../ui/button.tsx'
import { Popover } from '../../ui/menu.tsx'
import { type ListSearch, parametersOf } from './query.ts'
import styles from './share.module.css'

type ShareProps = { readonly collection: string; readonly search: ListSearch; readonly fields: readonly string[] }

/** The shown rows of a collection, as somebody else would ask for them: an address, curl, the client. */
export function Share(props: ShareProps) {
  return <Ways ways={waysToAsk(props)} />
}

/** Texts to copy, by their titles. */
export function Ways({ ways }: { readonly ways: Readonly<Record<string, string>> }) {
  return (
    <Popover
      title="Ask for the same"
      align="end"
      trigger={
        <Button size="s">
          <Code2 aria-hidden="true" /> API
        </Button>
      }
    >
      <div className={styles.share}>
        {Object.entries(ways).map(([title, text]) => (
          <Snippet key={title} title={title} text={text} />
        ))}
      </div>
    </Popover>
  )
}

function waysToAsk({ collection, search, fields }: ShareProps): Readonly<Record<string, string>> {
  const parameters = { fields: fields.join(','), ...parametersOf(search), limit: 25 }
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined)
  const query = new URLSearchParams(
    given.map(([name, value]) => [name, typeof value === 'object' ? JSON.stringify(value) : String(value)]),
  )
  // Characters that need no escaping stay as people read them.
  const url = `${location.origin}/items/${encodeURIComponent(collection)}?${String(query).replaceAll('%2C', ',').replaceAll('%3A', ':').replaceAll('%24', '$')}`
  const options = Object.fromEntries(
    given.map(([name, value]) => [name, name === 'fields' || name === 'sort' ? String(value).split(',') : value]),
  )
  return {
    Address: url,
    curl: `curl -g -H "authorization: Bearer $TOKEN" '${url.replaceAll("'", '%27')}'`,
    Client: `await client.items('${collection}').list(${JSON.stringify(options, null, 2)})`,
  }
}

function Snippet({ title, text }: { readonly title: string; readonly text: string }) {
  const [isCopied, setCopied] = useState(false)
  const copy = async () => {
    await navigator.clipboard.writeText(text)
    setCopied(true)
  }
  return (
    <section>
      <div className={styles.head}>
        <h2>{title}</h2>
        <IconButton label={isCopied ? 'Copied' : `Copy ${title}`} size="s" onClick={() => void copy()}>
          {isCopied ? <Check /> : <Copy />}
        </IconButton>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard */}
      <pre className={styles.code} tabIndex={0}>
        {text}
      </pre>
    </section>
  )
}
