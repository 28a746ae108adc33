import { Page } from '../../shell/page.tsx'
import { Empty } from '../../ui/states.tsx'

/** The page for everybody else who follows a link here. */
export const ForAdministrators = () => (
  <Page title="Schema">
    <Empty title="Administrators alone change collections" />
  </Page>
)
